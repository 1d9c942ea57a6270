"""What the workers of a run did over time, in few pieces: two runs are drawn side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_strata.analysis.overview.compute_comparable import first_submission
from dask_strata.analysis.series.columns import Array, Names, columns
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
        From the first submission to the end of the last execution.
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


_EXECUTIONS = """
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
    workers, prefixes = Names(), Names()
    found = columns(run, _EXECUTIONS, names={"worker": workers, "prefix": prefixes})
    if not found:
        return None
    origin = first_submission(run) or int(found["start"].min())
    span = int(found["stop"].max()) - origin
    if span <= 0:
        return None
    busy = _busy(found, len(prefixes.names), origin, span)
    known = [(row["worker"], row["name"]) for row in run.rows(_WORKERS)]
    known += [(name, name) for name in workers.names if name not in dict(known)]
    lanes: dict[str, tuple[Block, ...]] = {}
    for address, name in known[:_MOST_WORKERS]:
        of_prefixes = busy.get(workers.number(address), {})
        label = name if name not in lanes else address
        lanes[label] = tuple(_blocks(of_prefixes, prefixes.names, span / 1e9))
    return Lanes(run.path.name, span / 1e9, lanes, len(known) - len(lanes))


def _busy(
    found: dict[str, Array], n_prefixes: int, origin: int, span: int
) -> dict[int, dict[int, Array]]:
    """Return the busy threads in each piece of time, by worker and prefix."""
    lanes, groups = np.unique(
        found["worker"].astype(np.int64) * n_prefixes + found["prefix"], return_inverse=True
    )
    ends = [np.clip((found[end] - origin) * (_BINS / span), 0, _BINS) for end in ("start", "stop")]
    until_start, until_stop = (_until(end, groups, len(lanes)) for end in ends)
    busy: dict[int, dict[int, Array]] = {}
    for lane, row in zip(lanes.tolist(), until_stop - until_start, strict=True):
        worker, prefix = divmod(lane, n_prefixes)
        busy.setdefault(worker, {})[prefix] = row
    return busy


def _until(ends: Array, groups: Array, n: int) -> Array:
    """Return how much of each piece of time is before given ends, as sums by group.

    >>> _until(np.array([1.5]), np.array([0]), 1)[0, :3]
    array([1. , 0.5, 0. ])
    """
    piece = ends.astype(np.int64)
    at, size = groups * (_BINS + 1) + piece, n * (_BINS + 1)
    ended = np.bincount(at, minlength=size).reshape(n, _BINS + 1)
    last = np.bincount(at, weights=ends - piece, minlength=size).reshape(n, _BINS + 1)
    whole = ended[:, ::-1].cumsum(axis=1)[:, ::-1] - ended
    parts: Array = (whole + last)[:, :_BINS]
    return parts


def _blocks(of_prefixes: dict[int, Array], names: list[str], span: float) -> Iterator[Block]:
    """Yield the prefix that used most of each piece of time; equal neighbours are one block."""
    if not of_prefixes:
        return
    prefixes = list(of_prefixes)
    busy = np.stack([of_prefixes[prefix] for prefix in prefixes])
    # A piece of which half is used is drawn as used.
    drawn = np.where(busy.sum(axis=0) >= 0.5, busy.argmax(axis=0), -1)  # noqa: PLR2004
    edges = np.flatnonzero(np.diff(drawn, prepend=-2, append=-2))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if drawn[start] >= 0:
            prefix = names[prefixes[int(drawn[start])]]
            yield Block(start * span / _BINS, stop * span / _BINS, prefix)
