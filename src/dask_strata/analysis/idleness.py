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

from dask_strata.analysis.series.columns import arrays, groups
from dask_strata.analysis.series.thread_states import (
    ThreadStates,
    WorkerStates,
    between,
    thread_states,
)

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

#: Times in which tasks waited on some workers, in order of these.
_ASSIGNED = (
    _READY
    + """
    select w.number, r.start, r.stop from ready r
    join (select unnest($1::varchar[]) as worker, unnest(range(len($1))) as number) w
      on w.worker = r.worker
    where r.stop > r.start order by w.number
"""
)

#: Seconds that tasks waited for P2P shuffles between two moments in ns. Dask measures them for a
#: whole shuffle: they count in proportion to the compute time of the prefix.
_SHUFFLE_WAITS = """
    with spent as (
        select coalesce(a.prefix, '(unknown)') as prefix,
               sum(epoch_ns(p.stop) - epoch_ns(p.start)) as total,
               sum(greatest(least(epoch_ns(p.stop), $2) - greatest(epoch_ns(p.start), $1), 0))
                   as within
        from phases p join attempts a on a.attempt = p.attempt
        where p.action in ('compute', 'executing') and p.stop > p.start group by 1
    )
    select coalesce(sum(least(w.seconds, s.total / 1e9) * s.within / s.total), 0) as seconds
    from _shuffle_waits w join spent s on s.prefix = w.prefix
"""


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


@dataclass(frozen=True)
class ThreadUse:
    """Thread-seconds of all workers in a part of a run.

    Attributes
    ----------
    total_seconds : float
        Threads times the time that their worker was connected.
    seconds : dict
        Thread-seconds of three of the kinds of a `Breakdown`: compute, transfer and idle.
    idle : tuple of IdleWorker
        Idle thread-seconds by worker and reason, the largest first.
    beside : dict
        Thread-seconds that were idle while tasks waited behind others on a worker whose threads
        were all busy, by the name of this worker, the largest first. A thread counts once, and
        only while a task waits for each such thread.
    """

    total_seconds: float
    seconds: dict[str, float]
    idle: tuple[IdleWorker, ...]
    beside: dict[str, float]

    def share(self, kind: str) -> float:
        """Return a kind's share of the total, 0 to 1; 0 if the total is 0."""
        return self.seconds[kind] / self.total_seconds if self.total_seconds else 0.0


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


def thread_use(run: Run, first: int, last: int, states: ThreadStates | None = None) -> ThreadUse:
    """Return the thread-seconds between two moments.

    Parameters
    ----------
    run : Run
        The run.
    first, last : int
        The moments, in ns since the epoch.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.

    Returns
    -------
    ThreadUse
        Its total is 0 for an imported run without phases of tasks.
    """
    states = thread_states(run) if states is None else states
    workers = [part for each in states.workers if (part := between(each, first, last)) is not None]
    total, by_kind = 0.0, dict.fromkeys(("compute", "transfer", "idle"), 0.0)
    for each in workers:
        held = np.diff(each.times) / 1e9
        total += float(held.sum()) * each.threads
        by_kind["compute"] += float(each.computing @ held)
        by_kind["transfer"] += float(each.fetching @ held)
        by_kind["idle"] += float(each.idle @ held)
    if run.record.imported and not run.n_rows("phases"):
        total = 0.0
    # As in `breakdown`: tasks that wait for a shuffle transfer.
    waits = run.rows(_SHUFFLE_WAITS, first, last)[0]
    waited = min(waits["seconds"], by_kind["compute"])
    by_kind["compute"] -= waited
    by_kind["transfer"] += waited
    names = _names(run)
    return ThreadUse(total, by_kind, _by_reason(run, workers, names), _beside(run, workers, names))


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


def _beside(run: Run, workers: Sequence[WorkerStates], names: dict[str, str]) -> dict[str, float]:
    """Return the idle thread-seconds while tasks waited on busy workers, by these workers."""
    if not workers:
        return {}
    base = min(int(each.times[0]) for each in workers)
    waiting = _waiting(run, workers, base)
    if not waiting:
        return {}
    changes = [
        (each.times - base, np.diff(each.idle, prepend=0, append=0))
        for each in workers
        if each.idle.any()
    ]
    idle_times, idle_steps = (
        np.concatenate([np.empty(0, np.int64), *(change[i] for change in changes)]) for i in (0, 1)
    )
    times = np.concatenate([idle_times, *(times for times, _ in waiting.values())])
    zeros = np.zeros(len(times) - len(idle_times))
    order = np.argsort(times, kind="stable")
    idle = np.cumsum(np.concatenate([idle_steps, zeros])[order])
    tasks = np.cumsum(
        np.concatenate([0 * idle_times, *(steps for _, steps in waiting.values())])[order]
    )
    times, held = times[order], np.diff(times[order], append=times[order][-1])
    share = np.where(tasks > 0, np.clip(idle, 0, tasks) / np.maximum(tasks, 1), 0.0)
    # Thread time per waiting task up to each moment.
    amount = np.concatenate([[0.0], np.cumsum(share * held)[:-1]])
    found: dict[str, float] = {}
    for worker, (at, steps) in waiting.items():
        name = names.get(worker, worker)
        found[name] = found.get(name, 0.0) - float(np.interp(at, times, amount) @ steps) / 1e9
    return {name: found[name] for name in sorted(found, key=lambda n: -found[n]) if found[name] > 0}


def _waiting(run: Run, workers: Sequence[WorkerStates], base: int) -> dict[str, tuple[Ints, Ints]]:
    """Return how the number of tasks changes that wait while their worker is full, by worker."""
    full: dict[str, list[tuple[Ints, Ints]]] = {}
    for each in workers:
        if each.full.any():
            times = each.times - base
            full.setdefault(each.worker, []).append((times[:-1][each.full], times[1:][each.full]))
    addresses = list(full)
    found = {}
    parts = map(arrays, run.batches(_ASSIGNED, addresses))
    for number, rows in groups(parts, "number"):
        ends = [np.concatenate(ends) for ends in zip(*full[addresses[number]], strict=True)]
        changes = _held(rows["start"] - base, rows["stop"] - base, ends[0], ends[1])
        if len(changes[0]):
            found[addresses[number]] = changes
    return found


def _held(start: Ints, stop: Ints, full_start: Ints, full_stop: Ints) -> tuple[Ints, Ints]:
    """Return the changes of the number of tasks that wait while their worker is full.

    Parameters
    ----------
    start, stop : array of int
        Times in which tasks of the worker wait.
    full_start, full_stop : array of int
        Disjoint times in which all threads of the worker are busy.

    Returns
    -------
    tuple of array of int
        The times in order, and the change at each.
    """
    times = np.concatenate([start, stop, full_start, full_stop])
    order = np.argsort(times, kind="stable")
    tasks, full = (
        np.cumsum(np.concatenate(steps)[order])
        for steps in (
            (start * 0 + 1, stop * 0 - 1, full_start * 0, full_stop * 0),
            (start * 0, stop * 0, full_start * 0 + 1, full_stop * 0 - 1),
        )
    )
    steps = np.diff(tasks * full, prepend=0)
    return times[order][steps != 0], steps[steps != 0]


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
