"""When the tasks of each prefix ran, and how many at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dask_strata.analysis.series.columns import Array
from dask_strata.analysis.timeline.timeline import Bars, Timeline

#: Steps from the first execution to the last.
STEPS = 240

#: Longest overlap, in ns, of two executions on a thread that is an error of their times: a worker
#: estimates the scheduler's clock anew while tasks run, and Dask's times have the estimates.
_CLOCK = 50_000_000


@dataclass(frozen=True)
class PrefixActivity:
    """When the functions of a prefix ran; times are ns since the timeline's origin.

    Attributes
    ----------
    prefix : str
        The prefix.
    first, last : int
        When the first one began, and when the last one ended.
    most : int
        Most that ran at the same moment.
    running : tuple of float
        Mean number of those that ran, at each step.
    """

    prefix: str
    first: int
    last: int
    most: int
    running: tuple[float, ...]


@dataclass(frozen=True)
class Activity:
    """When tasks ran, by prefix.

    Attributes
    ----------
    begin : int
        Begin of the first step: that of the first execution of any prefix, in ns since the
        timeline's origin.
    step : float
        Length of a step, in ns; the last step ends with the last execution.
    prefixes : tuple of PrefixActivity
        The prefixes, the first one that ran first.
    n_other_prefixes : int
        Prefixes that are left out, and prefixes none of whose executions is on record.
    """

    begin: int
    step: float
    prefixes: tuple[PrefixActivity, ...]
    n_other_prefixes: int


def activity(drawn: Timeline, names: Iterable[str]) -> Activity:
    """Return when tasks of some prefixes ran.

    Parameters
    ----------
    drawn : Timeline
        The timeline of the run.
    names : iterable of str
        The prefixes.
    """
    bars = drawn.bars
    ran = bars.ran == 1
    ends = _cut(bars, ran)
    begin, end = (int(bars.start[ran].min()), int(bars.stop[ran].max())) if ran.any() else (0, 0)
    edges = np.linspace(begin, max(end, begin + 1), STEPS + 1)
    wanted = set(names)
    found = []
    for number, prefix in enumerate(drawn.prefixes):
        if prefix not in wanted:
            continue
        own = (bars.prefix == number) & ran
        if not own.any():
            continue
        start, stop = np.sort(bars.start[own]), np.sort(bars.stop[own])
        most = _most(start, np.sort(ends[own]))
        seconds = np.diff(_until(start, edges) - _until(stop, edges))
        running = np.maximum(seconds / np.diff(edges), 0)
        found.append(
            PrefixActivity(prefix, int(start[0]), int(stop[-1]), most, tuple(running.tolist()))
        )
    found.sort(key=lambda each: (each.first, each.last, each.prefix))
    step = float(edges[1] - edges[0])
    return Activity(begin, step, tuple(found), len(drawn.prefixes) - len(found))


def _cut(bars: Bars, ran: Array) -> Array:
    """Return ends of bars, without short overlaps with the next execution on the same thread.

    Executions that overlap for more than half of one of them are kept: coroutines share a thread.
    """
    at = np.flatnonzero(ran)
    start, stop, ends = bars.start[at], bars.stop[at], bars.stop.copy()
    over = stop[:-1] - start[1:]
    half = np.minimum(stop[:-1] - start[:-1], stop[1:] - start[1:]) / 2
    cut = (np.diff(bars.row[at]) == 0) & (over > 0) & (over < _CLOCK) & (over < half)
    ends[at[:-1][cut]] = start[1:][cut]
    return ends


def _until(moments: Array, edges: Array) -> Array:
    """Return, for each edge, the sum of the times from the moments before it until the edge."""
    sums = np.concatenate([[0.0], np.cumsum(moments, dtype=np.float64)])
    before = np.searchsorted(moments, edges, side="left")
    passed: Array = before * edges - sums[before]
    return passed


def _most(start: Array, stop: Array) -> int:
    """Return how many intervals overlap at most; one that ends as another begins does not."""
    ended = np.searchsorted(stop, start, side="right")
    return max(int((np.arange(1, len(start) + 1) - ended).max()), 1)
