"""Idle threads and the reasons, by worker.

`breakdown` computes how long threads were idle. The reason at each moment is one for the whole
cluster: no task was unfinished; or a task was ready but had not started (queued, sent to a worker
but not yet started, or behind others on a busy worker); or each unfinished task was running or
waited for one that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dask_strata.analysis.series.columns import arrays
from dask_strata.analysis.series.thread_states import ThreadStates, WorkerStates, thread_states

if TYPE_CHECKING:
    from dask_strata.analysis.series.columns import Ints
    from dask_strata.run import Run

#: Reasons of idleness, and their meanings.
REASONS = {
    "nothing submitted": "the scheduler had no unfinished task",
    "tasks ready elsewhere": "tasks were ready but had not started: they were queued, sent to a "
    "worker but not yet started, or behind others on a busy worker",
    "too few tasks at once": "each unfinished task was running or waited for one that was",
}

#: SQL clauses. `ready` has the times in which tasks were ready but had not started: without a
#: worker while they were queued, else assigned to it.
_READY = """
    with first as (
        select attempt, min(a) filter (action <> 'transfer') as begun,
               max(b) filter (action = 'transfer') as fetched
        from (select attempt, action, epoch_ns(start) as a, epoch_ns(stop) as b from phases
              union all select attempt, 'transfer', start, stop from _waits)
        group by attempt
    ), ready as (
        select a.worker,
               greatest(epoch_ns(a.start), coalesce(f.fetched, epoch_ns(a.start))) as start,
               least(f.begun, epoch_ns(coalesce(a.stop, b.last))) as stop
        from attempts a cross join _bounds b left join first f on f.attempt = a.attempt
        where a.start is not null
        union all
        select null, start, stop from _queued
    )
"""

#: Changes, +1 and -1, of the number of unfinished tasks and of those ready but not started.
_STEPS = (
    _READY
    + """
    , lifetimes as (
        select epoch_ns(_since) as start, epoch_ns(coalesce(finished, forgotten)) as stop
        from tasks where _since is not null
    )
    select start as t, 1::tinyint as unfinished, 0::tinyint as ready from lifetimes
    union all select stop, -1, 0 from lifetimes where stop is not null
    union all select start, 0, 1 from ready where stop > start
    union all select stop, 0, -1 from ready where stop > start
    order by t
"""
)


@dataclass(frozen=True)
class IdleWorker:
    """Idle thread-seconds of a worker, by reason."""

    worker: str
    name: str
    seconds: dict[str, float]

    @property
    def idle_seconds(self) -> float:
        """Idle thread-seconds of all reasons."""
        return sum(self.seconds.values())


def idle_workers(run: Run, states: ThreadStates | None = None) -> tuple[IdleWorker, ...]:
    """Return the idle thread-seconds of each worker by reason, the largest first.

    Parameters
    ----------
    run : Run
        The run.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.

    Returns
    -------
    tuple of IdleWorker
        Empty for an imported run without the scheduler's transitions: the reasons are unknown.
    """
    states = thread_states(run) if states is None else states
    return _by_reason(run, states.workers, _names(run))


def _names(run: Run) -> dict[str, str]:
    rows = run.rows("select worker, any_value(name) as name from workers group by worker")
    return {row["worker"]: row["name"] or row["worker"] for row in rows}


def _by_reason(
    run: Run, workers: Sequence[WorkerStates], names: dict[str, str]
) -> tuple[IdleWorker, ...]:
    workers = [each for each in workers if each.idle.any()]
    unknown = run.record.imported and not run.n_rows("scheduler_transitions")
    if unknown or not workers:
        return ()
    base = min(int(each.times[0]) for each in workers)
    times, spent = _reasons(run, base)
    idle: dict[str, dict[str, float]] = {}
    for each in workers:
        of_worker = idle.setdefault(each.worker, dict.fromkeys(REASONS, 0.0))
        for reason, amount in spent.items():
            part = np.diff(np.interp(each.times - base, times, amount))
            of_worker[reason] += float(part @ each.idle)
    found = [
        IdleWorker(
            worker,
            names.get(worker) or worker,
            {reason: seconds / 1e9 for reason, seconds in of_worker.items()},
        )
        for worker, of_worker in idle.items()
    ]
    return tuple(sorted(found, key=lambda w: (-w.idle_seconds, w.worker)))


def _reasons(
    run: Run, base: int
) -> tuple[npt.NDArray[np.float64], dict[str, npt.NDArray[np.float64]]]:
    """Return moments in ns from `base`, and how many ns each reason had applied up to each.

    Before the first task and after the last, the reason is that nothing was submitted.
    """
    times, which = [np.array([-(2.0**62)])], [np.array([0])]
    unfinished = ready = 0
    for batch in run.batches(_STEPS):
        steps = arrays(batch)
        if not len(steps["t"]):
            continue
        n_unfinished = unfinished + np.cumsum(steps["unfinished"], dtype=np.int64)
        n_ready = ready + np.cumsum(steps["ready"], dtype=np.int64)
        unfinished, ready = int(n_unfinished[-1]), int(n_ready[-1])
        at = np.where(n_ready > 0, 1, np.where(n_unfinished > 0, 2, 0))
        last = np.append(np.diff(steps["t"]) > 0, True)  # the last of several at the same moment
        moment, at = steps["t"][last], at[last]
        changed = np.diff(at, prepend=which[-1][-1]) != 0
        if changed.any():
            times.append((moment[changed] - base).astype(np.float64))
            which.append(at[changed])
    times.append(np.array([2.0**62]))
    return _amounts(np.concatenate(times), np.concatenate(which))


def _amounts(
    times: npt.NDArray[np.float64], which: Ints
) -> tuple[npt.NDArray[np.float64], dict[str, npt.NDArray[np.float64]]]:
    """Return the times, and for each reason how many ns it had applied up to each time."""
    held = np.diff(times)
    spent = {}
    for number, reason in enumerate(REASONS):
        amount = np.concatenate([[0.0], np.cumsum(np.where(which == number, held, 0.0))])
        # Count from the first moment: near 2**62 ns the interpolation would lose precision.
        spent[reason] = amount - amount[min(1, len(amount) - 1)]
    return times, spent
