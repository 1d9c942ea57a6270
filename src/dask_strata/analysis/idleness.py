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

from dask_strata.analysis.breakdown import STATES

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: Reasons of idleness, and their meanings.
REASONS = {
    "nothing submitted": "the scheduler had no unfinished task",
    "tasks ready elsewhere": "tasks were ready but had not started: they were queued, sent to a "
    "worker but not yet started, or behind others on a busy worker",
    "too few tasks at once": "each unfinished task was running or waited for one that was",
}

_IDLE = (
    STATES
    + """
    select worker, t as start, t + dt as stop, greatest(n - busy, 0) - fetching as idle
    from (select *, least(greatest(n - busy, 0), x) as fetching from counted)
    where greatest(n - busy, 0) > fetching
    """
)

#: Changes, +1 and -1, of the number of unfinished tasks and of those ready but not started.
_STEPS = """
    with first as (
        select attempt, min(epoch_ns(start)) filter (action <> 'transfer') as begun,
               max(epoch_ns(stop)) filter (action = 'transfer') as fetched
        from phases group by attempt
    ), ready as (
        select greatest(epoch_ns(a.start), coalesce(f.fetched, epoch_ns(a.start))) as start,
               least(coalesce(f.begun, epoch_ns(a.stop)), epoch_ns(a.stop)) as stop
        from attempts a left join first f on f.attempt = a.attempt
        where a.start is not null and a.stop is not null
        union all
        select epoch_ns(time), epoch_ns(next_time) from _transitions
        where finish_state in ('queued', 'no-worker') and next_time is not null
    ), lifetimes as (
        select epoch_ns(submitted) as start, epoch_ns(coalesce(finished, forgotten)) as stop
        from tasks where submitted is not null
    )
    select start as t, 1 as unfinished, 0 as ready from lifetimes
    union all select stop, -1, 0 from lifetimes where stop is not null
    union all select start, 0, 1 from ready where stop > start
    union all select stop, 0, -1 from ready where stop > start
    order by t
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


def idle_workers(run: Run) -> tuple[IdleWorker, ...]:
    """Return the idle thread-seconds of each worker by reason, the largest first.

    Parameters
    ----------
    run : Run
        The run.
    """
    spans = run.arrow(_IDLE)
    if not len(spans):
        return ()
    base = int(spans["start"].to_numpy().min())
    start, stop = (spans[name].to_numpy() - base for name in ("start", "stop"))
    times, spent = _reasons(run, base)
    threads = spans["idle"].cast("double").to_numpy()
    worker = spans["worker"].cast("string").combine_chunks().dictionary_encode()
    codes = worker.indices.to_numpy()
    idle: dict[str, list[float]] = {}
    for reason, amount in spent.items():
        part = np.interp(stop, times, amount) - np.interp(start, times, amount)
        idle[reason] = np.bincount(
            codes, weights=part * threads, minlength=len(worker.dictionary)
        ).tolist()
    names = {
        row["worker"]: row["name"]
        for row in run.rows("select worker, any_value(name) as name from workers group by worker")
    }
    found = [
        IdleWorker(
            address,
            names.get(address) or address,
            {reason: idle[reason][i] / 1e9 for reason in REASONS},
        )
        for i, address in enumerate(worker.dictionary.to_pylist())
    ]
    return tuple(sorted(found, key=lambda w: (-w.idle_seconds, w.worker)))


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
