"""Values of columns that code compares with: states, roles, kinds of losses."""

from __future__ import annotations

SCHEDULER_STATES = (
    "released",
    "waiting",
    "no-worker",
    "queued",
    "processing",
    "memory",
    "erred",
    "forgotten",
)

WORKER_STATES = (
    "released",
    "waiting",
    "constrained",
    "ready",
    "fetch",
    "flight",
    "missing",
    "executing",
    "long-running",
    "memory",
    "error",
    "cancelled",
    "resumed",
    "rescheduled",
    "forgotten",
)

#: Roles of Dask's processes. Several can share a process of the operating system: the first of
#: them in this order names it.
DASK_ROLES = ("worker", "scheduler", "client", "nanny", "record")

#: Values of ``losses.what`` that `check` treats separately: a damaged segment, a missing frame in
#: the middle of a segment, a worker without a record, counters of Darshan logs that were not
#: read because PyDarshan was not installed, and an upload that was interrupted for some time.
LOST_SEGMENT = "segment"
LOST_FRAME = "frame"
LOST_FRAME_IN_0_1 = ("rows", "a frame is missing")  # ``what`` and ``reason`` in runs of 0.1
LOST_WORKER = "worker"
LOST_COUNTERS = "counters of Darshan's logs"
INTERRUPTED_UPLOAD = "upload"

#: Begin of ``losses.reason`` of log entries that are left out on purpose: a process logs too much.
BEYOND_BOUND = "beyond the bound"

#: Tolerance when processes and logs are matched by time: it covers the clocks of two hosts, and
#: a process that starts before its recording or ends after it.
MATCH_TOLERANCE_NS = 5_000_000_000

#: Fixed parts of the text in ``worker_events.reason``, in every version of the record. The rows of
#: process-start and process-exit begin with ``pid``, a blank and the process id; an exit by a
#: signal goes on with KILLED_BY. A removal begins with ANNOUNCED if the worker or the scheduler had
#: announced it, else with EXPECTED or UNEXPECTED, which is Dask's word for it.
PID = "pid "
KILLED_BY = "was killed by "
#: Actions in ``worker_events`` of a worker's process that died of SIGKILL: whether the kernel's
#: counter of OOM kills in its control group rose. The reason begins as that of its exit.
OOM_KILL = "oom-kill"
NO_OOM_KILL = "no-oom-kill"
#: Action in ``worker_events``: the scheduler restarts or removes a worker without a heartbeat.
NO_HEARTBEAT = "no-heartbeat"
#: Actions in ``worker_events`` of absent workers: a cluster was asked for it, the scheduler refused
#: it, or its nanny could not start it.
REQUESTED = "requested"
REFUSED = "refused"
START_FAILED = "start-failed"
ANNOUNCED = "announced"
EXPECTED = "expected"
UNEXPECTED = "unexpected"
