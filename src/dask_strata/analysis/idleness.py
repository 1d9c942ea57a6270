"""Idle threads and the reasons, by worker.

`breakdown` computes how long threads were idle. The reason at each moment is one for the whole
cluster: no task was unfinished; or a task was ready but had not started (queued, sent to a worker
but not yet started, or behind others on a busy worker); or each unfinished task was running or
waited for one that was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.breakdown import STATES
from dask_strata.analysis.critical_path.data import Groups

if TYPE_CHECKING:
    from dask_strata.run import Run

    Ints = npt.NDArray[np.int64]

#: Reasons of idleness, and their meanings.
REASONS = {
    "nothing submitted": "the scheduler had no unfinished task",
    "tasks ready elsewhere": "tasks were ready but had not started: they were queued, sent to a "
    "worker but not yet started, or behind others on a busy worker",
    "too few tasks at once": "each unfinished task was running or waited for one that was",
}

#: Threads of each worker from each moment to the next, in all and by state.
_THREADS = (
    STATES
    + """
    select worker, t as start, t + dt as stop, busy >= n as full, n::double as total,
           (c * running)::double as compute, fetching::double as transfer, idle::double as idle
    from shares
    """
)

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
        select null, epoch_ns(time), epoch_ns(next_time) from _transitions
        where finish_state in ('queued', 'no-worker') and next_time is not null
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
    select start as t, 1 as unfinished, 0 as ready from lifetimes
    union all select stop, -1, 0 from lifetimes where stop is not null
    union all select start, 0, 1 from ready where stop > start
    union all select stop, 0, -1 from ready where stop > start
    order by t
"""
)

_ASSIGNED = (
    _READY + "select worker, start, stop from ready where stop > start and worker is not null"
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


def idle_workers(run: Run) -> tuple[IdleWorker, ...]:
    """Return the idle thread-seconds of each worker by reason, the largest first.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of IdleWorker
        Empty for an imported run without the scheduler's transitions: the reasons are unknown.
    """
    return _by_reason(run, run.arrow(_THREADS), _names(run))


def thread_use(run: Run, first: int, last: int) -> ThreadUse:
    """Return the thread-seconds between two moments.

    Parameters
    ----------
    run : Run
        The run.
    first, last : int
        The moments, in ns since the epoch.

    Returns
    -------
    ThreadUse
        Its total is 0 for an imported run without phases of tasks.
    """
    spans = run.arrow(_THREADS)
    start = np.maximum(spans["start"].to_numpy(), first)
    stop = np.minimum(spans["stop"].to_numpy(), last)
    spans = spans.drop_columns(["start", "stop"])
    spans = spans.append_column("start", pa.array(start)).append_column("stop", pa.array(stop))
    spans, held = spans.filter(pa.array(stop > start)), (stop - start)[stop > start] / 1e9
    total, *seconds = (
        float(spans[name].to_numpy() @ held) for name in ("total", "compute", "transfer", "idle")
    )
    if run.record.imported and not len(run["phases"]):
        total = 0.0
    by_kind = dict(zip(("compute", "transfer", "idle"), seconds, strict=True))
    # As in `breakdown`: tasks that wait for a shuffle transfer.
    waits = run.rows(_SHUFFLE_WAITS, first, last)[0]
    waited = min(waits["seconds"], by_kind["compute"])
    by_kind["compute"] -= waited
    by_kind["transfer"] += waited
    names = _names(run)
    return ThreadUse(total, by_kind, _by_reason(run, spans, names), _beside(run, spans, names))


def _names(run: Run) -> dict[str, str]:
    rows = run.rows("select worker, any_value(name) as name from workers group by worker")
    return {row["worker"]: row["name"] or row["worker"] for row in rows}


def _by_reason(run: Run, spans: pa.Table, names: dict[str, str]) -> tuple[IdleWorker, ...]:
    spans = spans.filter(pc.greater(spans["idle"], 0))
    unknown = run.record.imported and not len(run["scheduler_transitions"])
    if unknown or not len(spans):
        return ()
    base = int(spans["start"].to_numpy().min())
    start, stop = (spans[name].to_numpy() - base for name in ("start", "stop"))
    times, spent = _reasons(run, base)
    threads = spans["idle"].to_numpy()
    worker = spans["worker"].cast("string").combine_chunks().dictionary_encode()
    codes = worker.indices.to_numpy()
    idle: dict[str, list[float]] = {}
    for reason, amount in spent.items():
        part = np.interp(stop, times, amount) - np.interp(start, times, amount)
        idle[reason] = np.bincount(
            codes, weights=part * threads, minlength=len(worker.dictionary)
        ).tolist()
    found = [
        IdleWorker(
            address,
            names.get(address) or address,
            {reason: idle[reason][i] / 1e9 for reason in REASONS},
        )
        for i, address in enumerate(worker.dictionary.to_pylist())
    ]
    return tuple(sorted(found, key=lambda w: (-w.idle_seconds, w.worker)))


def _beside(run: Run, spans: pa.Table, names: dict[str, str]) -> dict[str, float]:
    """Return the idle thread-seconds while tasks waited on busy workers, by these workers."""
    assigned = run.arrow(_ASSIGNED)
    if not len(assigned) or not len(spans):
        return {}
    base = int(spans["start"].to_numpy().min())
    full = _by_worker(spans.filter(spans["full"]), base)
    waiting = {
        worker: _held(*intervals, *full[worker])
        for worker, intervals in _by_worker(assigned, base).items()
        if worker in full
    }
    start, stop = (spans[name].to_numpy() - base for name in ("start", "stop"))
    threads = spans["idle"].to_numpy()
    idle_times = np.concatenate([start, stop])
    idle_steps = np.concatenate([threads, -threads])
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


def _by_worker(table: pa.Table, base: int) -> dict[str, tuple[Ints, Ints]]:
    """Return the intervals of each worker, in ns from `base`."""
    worker = table["worker"].cast("string").combine_chunks().dictionary_encode()
    addresses = worker.dictionary.to_pylist()
    groups = Groups.of(worker.indices.to_numpy().astype(np.int64), len(addresses))
    start, stop = (table[name].to_numpy() - base for name in ("start", "stop"))
    return {
        address: (start[groups.rows(i)], stop[groups.rows(i)])
        for i, address in enumerate(addresses)
    }


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
    return times[order], np.diff(tasks * full, prepend=0)


def _reasons(
    run: Run, base: int
) -> tuple[npt.NDArray[np.float64], dict[str, npt.NDArray[np.float64]]]:
    """Return moments in ns from `base`, and how many ns each reason had applied up to each.

    Before the first task and after the last, the reason is that nothing was submitted.
    """
    steps: pa.Table = run.arrow(_STEPS)
    ends = np.array([-(2.0**62), 2.0**62])
    times = np.concatenate([ends[:1], steps["t"].to_numpy() - base, ends[1:]])
    held = np.diff(times)
    unfinished, ready = (
        np.concatenate([[0], np.cumsum(steps[name].to_numpy())]) for name in ("unfinished", "ready")
    )
    which = np.where(ready > 0, 1, np.where(unfinished > 0, 2, 0))
    spent = {}
    for number, reason in enumerate(REASONS):
        amount = np.concatenate([[0.0], np.cumsum(np.where(which == number, held, 0.0))])
        # Count from the first moment: near 2**62 ns the interpolation would lose precision.
        spent[reason] = amount - amount[min(1, len(amount) - 1)]
    return times, spent
