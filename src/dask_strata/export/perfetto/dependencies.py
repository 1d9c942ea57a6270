"""Dependencies as flows from the attempt that made a result to the attempts that used it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_strata.run import Run

#: Flows of dependencies have numbers from here on, those of transfers lower ones.
_FIRST_FLOW = 1 << 62

# A task is assigned to a worker when its dependencies have results: the attempt that ended last
# before made the result that it used.
_EDGES = """
    with edges as (
        select distinct _key, _dependency from graph_edges where _key is not null
    ), made as (
        select _key, attempt, stop from attempts
        where outcome = 'memory' and stop is not null and _key is not null
    ), used as (
        select e._dependency, a.attempt, a.start from edges e join attempts a on a._key = e._key
    )
    select m.attempt as source, u.attempt as target
    from used u asof left join made m on m._key = u._dependency and m.stop <= u.start
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
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    without = 0
    for batch in run.batches(_EDGES):
        source = batch.column(0)
        without += source.null_count
        known = batch.filter(source.is_valid())
        sources.append(np.asarray(known.column(0), np.int64))
        targets.append(np.asarray(known.column(1), np.int64))
    source, target = np.concatenate(sources), np.concatenate(targets)
    usable = _forwards(source, target, attempts, starts)
    without += int(len(usable) - usable.sum())
    source, target = source[usable], target[usable]
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    flows = np.arange(len(source), dtype=np.int64) + _FIRST_FLOW
    by_target = np.argsort(target, kind="stable")
    return Dependencies(
        len(source), without, source, flows, target[by_target], flows[by_target]
    )


def _forwards(source: Any, target: Any, attempts: Any, starts: Any) -> Any:
    """Return which flows lead from an attempt to one that begins later: viewers draw no others."""
    if not len(source) or not len(attempts):
        return np.zeros(len(source), np.bool_)
    a, b = (np.minimum(np.searchsorted(attempts, x), len(attempts) - 1) for x in (source, target))
    there = (attempts[a] == source) & (attempts[b] == target)
    later = (starts[a] < starts[b]) | (starts[a] == starts[b]) & (source < target)
    return there & later
