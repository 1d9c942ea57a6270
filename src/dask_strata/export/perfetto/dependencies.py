"""Dependencies as flows from the attempt that made a result to the attempts that used it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_strata.run import Run

#: Flows of dependencies have numbers from here on, those of transfers lower ones.
_FIRST_FLOW = 1 << 62

_MADE = """
    select _key::bigint as k, attempt, epoch_ns(stop) as t from attempts
    where outcome = 'memory' and stop is not null and _key is not null
"""

_USED = """
    select e._dependency::bigint as k, a.attempt, epoch_ns(a.start) as t
    from (select distinct _key, _dependency from graph_edges
          where _key is not null and _dependency is not null) e
    join attempts a on a._key = e._key where a.start is not null
"""

_EMPTY: tuple[Sequence[int], Sequence[int]] = ((), ())


@dataclass(frozen=True)
class Dependencies:
    """Flows between attempts.

    Attributes
    ----------
    number : int
        Number of flows.
    without : int
        Uses of a dependency that have no flow.
    sources, sent, targets, received : numpy array
        The attempt at which each flow begins, sorted, and its number; likewise for its end.
    """

    number: int = 0
    without: int = 0
    sources: Any = None
    sent: Any = None
    targets: Any = None
    received: Any = None

    def of(self, attempts: Any) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Yield the flows that begin and that end at each of some attempts."""
        if not self.number:
            for _ in range(len(attempts)):
                yield _EMPTY
            return
        bounds = (
            (np.searchsorted(known, attempts, "left"), np.searchsorted(known, attempts, "right"))
            for known in (self.sources, self.targets)
        )
        (s0, s1), (t0, t1) = ((a.tolist(), b.tolist()) for a, b in bounds)
        for a, b, c, d in zip(s0, s1, t0, t1, strict=True):
            sent = self.sent[a:b].tolist() if b > a else ()
            received = self.received[c:d].tolist() if d > c else ()
            yield sent, received


def read_dependencies(run: Run, attempts: Any, starts: Any) -> Dependencies:
    """Return the dependencies between attempts of a run.

    Parameters
    ----------
    run : Run
        The run.
    attempts : numpy array
        Numbers of the attempts that are in the trace, sorted.
    starts : numpy array
        When each of them begins.
    """
    made = _Made(*_columns(run, _MADE))
    key, target, start = _columns(run, _USED)
    source, found = made.before(key, start)
    without = int(len(found) - found.sum())
    source, target = source[found], target[found]
    usable = _forwards(source, target, attempts, starts)
    without += int(len(usable) - usable.sum())
    source, target = source[usable], target[usable]
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    flows = np.arange(len(source), dtype=np.int64) + _FIRST_FLOW
    by_target = np.argsort(target, kind="stable")
    return Dependencies(len(source), without, source, flows, target[by_target], flows[by_target])


def _columns(run: Run, query: str) -> list[Any]:
    """Return the columns of a query: whole numbers."""
    parts: list[list[Any]] = [[np.empty(0, np.int64)] for _ in range(3)]
    for batch in run.batches(query):
        for part, column in zip(parts, batch.columns, strict=True):
            part.append(np.asarray(column, np.int64))
    return [np.concatenate(part) for part in parts]


class _Made:
    """Attempts that made results, by key and in order of time."""

    def __init__(self, key: Any, attempt: Any, stop: Any) -> None:
        order = np.lexsort((attempt, stop, key))
        self._key, self._attempt, self._stop = key[order], attempt[order], stop[order]

    def before(self, key: Any, time: Any) -> tuple[Any, Any]:
        """Return the last attempt at each key that ended by a time, and whether there is one.

        A task is assigned to a worker when its dependencies have results.
        """
        first = np.searchsorted(self._key, key, "left")
        low, high = first.copy(), np.searchsorted(self._key, key, "right")
        last = max(len(self._key) - 1, 0)
        while (unsure := low < high).any():
            middle = (low + high) // 2
            ended = self._stop[np.minimum(middle, last)] <= time
            low = np.where(unsure & ended, middle + 1, low)
            high = np.where(unsure & ~ended, middle, high)
        found = low > first
        if not len(self._key):
            return np.zeros(len(key), np.int64), found
        return self._attempt[np.maximum(low - 1, 0)], found


def _forwards(source: Any, target: Any, attempts: Any, starts: Any) -> Any:
    """Return which flows lead from an attempt to one that begins later: viewers draw no others."""
    if not len(source) or not len(attempts):
        return np.zeros(len(source), np.bool_)
    a, b = (np.minimum(np.searchsorted(attempts, x), len(attempts) - 1) for x in (source, target))
    there = (attempts[a] == source) & (attempts[b] == target)
    later = (starts[a] < starts[b]) | (starts[a] == starts[b]) & (source < target)
    return there & later
