"""What the workers of a run did over time, in few pieces: two runs are drawn side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_strata.analysis.critical_path.walk import critical_path
from dask_strata.analysis.overview.comparable import first_submission
from dask_strata.run import Run

#: Most workers, and pieces of the time axis.
_MOST_WORKERS = 32
_BINS = 400


@dataclass(frozen=True)
class Block:
    """A time in which tasks of one prefix used a worker's threads most.

    Attributes
    ----------
    start_seconds, stop_seconds : float
        Since the run's first submission.
    prefix : str
        The prefix.
    """

    start_seconds: float
    stop_seconds: float
    prefix: str


@dataclass(frozen=True)
class Lanes:
    """The workers of a run over time.

    Attributes
    ----------
    run : str
        Name of the run.
    span_seconds : float
        From the first submission to the end of the critical path.
    workers : dict of str to tuple of Block
        The blocks of each worker.
    n_more : int
        Workers that are left out.
    """

    run: str
    span_seconds: float
    workers: dict[str, tuple[Block, ...]]
    n_more: int

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes that are drawn, the longest first."""
        seconds: Counter[str] = Counter()
        for blocks in self.workers.values():
            for block in blocks:
                seconds[block.prefix] += block.stop_seconds - block.start_seconds  # type: ignore[assignment]
        return tuple(prefix for prefix, _ in seconds.most_common())


_PHASES = """
    select p.worker, coalesce(a.prefix, '(unknown)') as prefix,
           epoch_ns(p.start) as start, epoch_ns(p.stop) as stop
    from phases p join attempts a on a.attempt = p.attempt
    where p.action in ('compute', 'executing') and p.stop > p.start and p.worker is not null
"""

#: Also workers that ran no task: an idle worker is what one run may have and the other not.
_WORKERS = """
    select worker, name from (
        select worker, coalesce(any_value(name), worker) as name from workers group by worker
    ) order by try_cast(name as bigint) nulls last, name, worker
"""


def lanes_of(run: Run) -> Lanes | None:
    """Return what the workers of a run did; None if no execution is on record.

    Parameters
    ----------
    run : Run
        The run.
    """
    path = critical_path(run)
    rows = run.rows(_PHASES)
    if not path.segments or not rows:
        return None
    origin = first_submission(run, path) or path.segments[0].start
    span = max(0, path.segments[-1].stop - origin) / 1e9
    by_worker: dict[str, tuple[str, list[tuple[str, int, int]]]] = {
        row["worker"]: (row["name"], []) for row in run.rows(_WORKERS)
    }
    for row in rows:
        _, executions = by_worker.setdefault(row["worker"], (row["worker"], []))
        executions.append((row["prefix"], row["start"] - origin, row["stop"] - origin))
    shown = list(by_worker.items())[:_MOST_WORKERS]
    workers = {}
    for address, (name, executions) in shown:
        label = name if name not in workers else address
        workers[label] = tuple(_blocks(executions, span))
    return Lanes(run.path.name, span, workers, len(by_worker) - len(shown))


def _blocks(executions: list[tuple[str, int, int]], span: float) -> Iterator[Block]:
    """Yield the prefix that used most of each piece of time; equal neighbours are one block."""
    if not executions or not span:
        return
    prefixes = sorted({prefix for prefix, _, _ in executions})
    busy = np.zeros((len(prefixes), _BINS))
    width = span * 1e9 / _BINS
    for prefix, start, stop in executions:
        row = busy[prefixes.index(prefix)]
        a, b = max(0.0, start / width), min(float(_BINS), stop / width)
        if b <= a:
            continue
        first, last = int(a), min(int(b), _BINS - 1)
        if first == last:
            row[first] += b - a
        else:
            row[first] += first + 1 - a
            row[first + 1 : last] += 1
            row[last] += b - last
    # A piece of which half is used is drawn as used.
    drawn = np.where(busy.sum(axis=0) >= 0.5, busy.argmax(axis=0), -1)  # noqa: PLR2004
    edges = np.flatnonzero(np.diff(drawn, prepend=-2, append=-2))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if drawn[start] >= 0:
            yield Block(start * width / 1e9, stop * width / 1e9, prefixes[int(drawn[start])])
