"""Tasks that run too long, and workers without a heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.recorder.stuck.durations import LEAST_SECONDS, Durations, Usual
from dask_strata.recorder.stuck.found import Found
from dask_strata.schema.measured.stuck import LONG_RUNNING, NO_ANSWER

#: Age of the last heartbeat from which a worker is asked whether it answers: in seconds, and in
#: intervals between heartbeats, which Dask makes longer for many workers.
_SILENT_SECONDS, _SILENT_INTERVALS = 10.0, 5

#: Dask's interval between heartbeats of many workers is their number divided by this, in seconds.
_HEARTBEATS_PER_SECOND = 200


def silent_after(n_workers: int) -> float:
    """Return the age of a heartbeat from which a worker is silent, in seconds.

    >>> silent_after(4), silent_after(2000)
    (10.0, 55.0)
    """
    return max(_SILENT_SECONDS, _SILENT_INTERVALS * (n_workers / _HEARTBEATS_PER_SECOND + 1))


def silent_workers(scheduler: Any, now: float) -> Iterator[Found]:
    """Yield the workers whose last heartbeat is old.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    now : float
        The time in seconds since the epoch.
    """
    limit = silent_after(len(scheduler.workers))
    for ws in scheduler.workers.values():
        if now - ws.last_seen >= limit:
            yield Found(NO_ANSWER, ws.last_seen, worker=ws)


def long_running(scheduler: Any, durations: Durations, now: float) -> list[Found]:
    """Return the tasks that run far longer than their prefix, the worst first.

    Tasks that left their worker's pool of threads (Dask's `secede`, also `worker_client`) wait for
    other tasks: they are returned only while nothing else is executing.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    durations : Durations
        Durations of finished executions.
    now : float
        The time in seconds since the epoch.
    """
    silent = silent_after(len(scheduler.workers))
    usual: dict[str, Usual] = {}
    found: list[tuple[float, Found]] = []
    seceded: list[tuple[float, Found]] = []
    executes = False
    for ws in scheduler.workers.values():
        age = max(now - ws.last_seen, 0.0)
        for ts, before in ws.executing.items():
            if ts.processing_on is not ws:  # it ended since the heartbeat
                continue
            has_left = ts in ws.long_running
            executes |= not has_left
            seconds = before + age
            if seconds < LEAST_SECONDS or age >= silent:
                continue
            prefix = ts.prefix.name
            if prefix not in usual:
                usual[prefix] = _usual(durations, ts.prefix)
            known = usual[prefix]
            if seconds >= known.limit:
                one = Found(LONG_RUNNING, now - seconds, ts, ws, known.typical, known.n)
                (seceded if has_left else found).append((seconds / known.limit, one))
    if not executes:
        found += seceded
    found.sort(key=lambda pair: -pair[0])
    return [one for _, one in found]


def _usual(durations: Durations, prefix: Any) -> Usual:
    """Return the usual duration of a prefix; before the first report Dask's own mean."""
    usual = durations.usual(prefix.name)
    n = prefix.state_counts.get("memory", 0)
    if usual.n or not n:
        return usual
    mean = prefix.all_durations.get("compute", 0.0) / n
    return Usual(n, mean, mean) if mean > 0 else usual
