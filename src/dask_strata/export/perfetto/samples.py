"""Samples of workers and of the scheduler as counters."""

from __future__ import annotations

import math
from typing import NamedTuple

from dask_strata.export.perfetto.trace import TraceFile
from dask_strata.export.perfetto.tracks import Tracks
from dask_strata.run import Run

#: Rows of samples that a trace has at most; of more, it has the last one of each interval.
MOST_SAMPLES = 200_000


class Counter(NamedTuple):
    """A column of samples as a counter of the trace."""

    column: str
    name: str
    unit: str


#: Of samples that a worker took itself, or the scheduler if there are no others.
OF_WORKERS = (
    Counter("rss_bytes", "memory: process", "bytes"),
    Counter("managed_bytes", "memory: results", "bytes"),
    Counter("unmanaged_bytes", "memory: unmanaged", "bytes"),
    Counter("spilled_bytes", "spilled results", "bytes"),
    Counter("cpu_percent", "CPU", "%"),
    Counter("read_bytes_per_second", "disk: read", "bytes/s"),
    Counter("write_bytes_per_second", "disk: write", "bytes/s"),
    Counter("net_read_bytes_per_second", "network: received", "bytes/s"),
    Counter("net_write_bytes_per_second", "network: sent", "bytes/s"),
    Counter("executing", "tasks executing", ""),
    Counter("ready", "tasks ready", ""),
)

#: Of samples that only the scheduler takes.
BY_SCHEDULER = (
    Counter("processing", "tasks processing", ""),
    Counter("occupancy_seconds", "occupancy", "s"),
)

OF_SCHEDULER = (
    Counter("occupancy_seconds", "occupancy", "s"),
    Counter("tasks", "tasks", ""),
    Counter("queued", "tasks queued", ""),
    Counter("no_worker", "tasks without a worker", ""),
    Counter("workers", "workers", ""),
    Counter("rss_bytes", "memory: process", "bytes"),
    Counter("cpu_percent", "CPU", "%"),
)

_OWN = """seen_by is distinct from 'scheduler' or worker not in (
    select worker from worker_samples where seen_by = 'worker' and worker is not null)"""

#: Rows by worker: the table, the rows of it, and their counters.
_SOURCES = (
    ("worker_samples", _OWN, OF_WORKERS),
    ("worker_samples", "seen_by = 'scheduler'", BY_SCHEDULER),
    ("scheduler_samples", "true", OF_SCHEDULER),
)


def write_samples(run: Run, trace: TraceFile, tracks: Tracks) -> tuple[int, int]:
    """Write samples as counters.

    Parameters
    ----------
    run : Run
        The run.
    trace : TraceFile
        The trace.
    tracks : Tracks
        Its tracks.

    Returns
    -------
    tuple of int
        Number of values, and the interval in ns of which the last sample is in the trace; 0 if all
        are.
    """
    found = run.rows(
        "select count(*) as n, count(distinct worker) as workers, "
        "max(epoch_ns(time)) - min(epoch_ns(time)) as span from worker_samples"
    )[0]
    step = 0
    if found["n"] > MOST_SAMPLES:
        step = max(1, -(-found["span"] * found["workers"] // MOST_SAMPLES))
    number = 0
    for table, condition, counters in _SOURCES:
        number += _write(run, trace, tracks, (table, condition), counters, step)
    return number, step


def _write(  # noqa: PLR0913, PLR0917  the trace and the rows
    run: Run,
    trace: TraceFile,
    tracks: Tracks,
    source: tuple[str, str],
    counters: tuple[Counter, ...],
    step: int,
) -> int:
    table, condition = source
    of_worker = table == "worker_samples"
    key = "worker" if of_worker else "null"
    columns = ", ".join(counter.column for counter in counters)
    query = (
        f"select {key} as worker, epoch_ns(time) as t, {columns} from {table} "  # noqa: S608
        f"where epoch_ns(time) >= 0 and ({condition})"
    )
    if step:
        last = ", ".join(f"arg_max({c.column}, t) as {c.column}" for c in counters)
        query = f"select worker, max(t) as t, {last} from ({query}) group by worker, t // {step}"  # noqa: S608
    number = 0
    for batch in run.batches(f"{query} order by t, worker"):
        rows = batch.to_pydict()
        workers, times = rows["worker"], rows["t"]
        pids = {
            worker: tracks.worker(worker) if of_worker else tracks.process("scheduler")
            for worker in dict.fromkeys(workers)
        }
        for counter in counters:
            for worker, time, value in zip(workers, times, rows[counter.column], strict=True):
                if value is None or not math.isfinite(value):
                    continue
                track = tracks.counter(pids[worker], counter.name, counter.unit)
                trace.value(track, time, value)
                number += 1
    return number
