"""Values of columns that programs compare with: states, roles, kinds of losses."""

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

#: Roles of Dask's processes. Where several share a process of the system, the first names it.
DASK_ROLES = ("worker", "scheduler", "client", "nanny", "record")

#: Values of ``losses.what`` that `check` treats apart: a damaged segment, a frame that is missing
#: in the middle of one, a worker without a record, and counters of Darshan logs that PyDarshan
#: did not read, because it was not installed.
LOST_SEGMENT = "segment"
LOST_FRAME = "frame"
LOST_FRAME_IN_0_1 = ("rows", "a frame is missing")  # its what and reason in runs of version 0.1
LOST_WORKER = "worker"
LOST_COUNTERS = "counters of Darshan's logs"

#: Tolerance when processes and logs are matched by time: for clocks of two hosts, and for a
#: process that starts before its recording or ends after it.
MATCH_TOLERANCE_NS = 5_000_000_000
