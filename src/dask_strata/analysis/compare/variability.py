"""How much the runs of one group differ, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.compare.effects import MEASURES, values_of
from dask_strata.analysis.compare.runs import Group
from dask_strata.analysis.compare.split import Split, split_difference
from dask_strata.analysis.overview.comparable import Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Kinds of measures whose spread is shown.
_SHOWN = ("makespan", "start-up", "critical path", "compute", "transfer")

#: Least numbers of runs for a trend, and for a curve over the day.
_LEAST_FOR_TREND = 5
_LEAST_FOR_DAY = 10

#: Hours of the day over which the starts of runs must be spread to look for a time of day.
_LEAST_HOURS = 6

#: Least number of executions to explain the variance of a prefix.
_LEAST_EXECUTIONS = 10

#: Most pairs of runs whose placement is compared.
_MOST_PAIRS = 300

#: Least number of tasks that two runs have in common, to compare where and when they ran.
_LEAST_COMMON = 10


@dataclass(frozen=True)
class Spread:
    """The values of one measure in the runs of a group.

    Attributes
    ----------
    measure, name, unit : str
        As in `Effect`.
    values : tuple of float or None
        The value of each run, in the order of the runs.
    median, least, most : float
        Of the known values.
    relative : float or None
        The middle half of the values by the median; None if the median is 0.
    """

    measure: str
    name: str
    unit: str
    values: tuple[float | None, ...]
    median: float
    least: float
    most: float
    relative: float | None


@dataclass(frozen=True)
class Explained:
    """What explains the variance of durations, of the tasks of a prefix or of the runs.

    Attributes
    ----------
    prefix : str
        The prefix; empty for the makespan of the runs.
    by : str
        host, worker, run, input size; of the makespan: order, time of day.
    share : float
        Share of the variance of the logarithms that it explains, 0 to 1, without what it would
        explain by chance.
    n : int
        Number of executions, or of runs.
    """

    prefix: str
    by: str
    share: float
    n: int


@dataclass(frozen=True)
class Schedule:
    """Whether the same tasks ran on the same workers, and in the same order, by pairs of runs.

    Placement and order are means of the pairs.

    Attributes
    ----------
    n_tasks : int
        Median number of tasks that two runs have in common, of a sample.
    placement : float or None
        Adjusted Rand index of the tasks' workers: 1 if the same tasks shared workers, 0 if they did
        no more than by chance. None if the runs have no task in common.
    order : float or None
        Rank correlation of the tasks' starts: 1 for the same order.
    """

    n_tasks: int
    placement: float | None
    order: float | None


@dataclass(frozen=True)
class Variability:
    """The runs of one group.

    Attributes
    ----------
    group : str
        Its name.
    spreads : tuple of Spread
        Spread of each measure, by kind, the largest medians first.
    explained : tuple of Explained
        What explains durations, most first.
    schedule : Schedule
        Where and in which order tasks ran.
    fastest, slowest : str
        Names of the runs with the least and the most makespan.
    split : Split
        The difference of these two.
    """

    group: str
    spreads: tuple[Spread, ...]
    explained: tuple[Explained, ...]
    schedule: Schedule
    fastest: str
    slowest: str
    split: Split


def describe(group: Group) -> Variability:
    """Return how much the runs of a group differ.

    Parameters
    ----------
    group : Group
        The group, of two runs or more.
    """
    ordered = sorted(group.runs, key=lambda run: run.makespan_seconds)
    fastest, slowest = ordered[0], ordered[-1]
    explained = [*_of_prefixes(group), *_of_runs(group)]
    return Variability(
        group.name,
        tuple(spreads_of(group)),
        tuple(sorted(explained, key=lambda e: (-e.share, e.prefix, e.by))),
        _schedule([run.values.sample for run in group.runs]),
        fastest.name,
        slowest.name,
        split_difference(Group("fastest", (fastest,)), Group("slowest", (slowest,))),
    )


def spreads_of(group: Group) -> Iterator[Spread]:
    """Yield the spread of each measure of a group's runs.

    Parameters
    ----------
    group : Group
        The group.
    """
    runs = [values_of(run) for run in group.runs]
    found = []
    for measure, name in {key: None for run in runs for key in run}:
        if measure not in _SHOWN:
            continue
        unit, is_none_of_it = MEASURES[measure]
        values = tuple(run.get((measure, name), 0.0 if is_none_of_it else None) for run in runs)
        known = [value for value in values if value is not None]
        if known and max(known) > 0:
            middle = median(known)
            low, high = np.quantile(known, [0.25, 0.75])
            relative = float(high - low) / middle if middle else None
            found.append(
                Spread(measure, name, unit, values, middle, min(known), max(known), relative)
            )
    yield from sorted(found, key=lambda s: (_SHOWN.index(s.measure), -s.median, s.name))


#: Number, sum and sum of squares.
_Sums = tuple[float, float, float]


def _of_prefixes(group: Group) -> Iterator[Explained]:
    places = [(run.name, place) for run in group.runs for place in run.values.places]
    by_prefix: dict[str, list[tuple[str, str | None, str | None, _Sums]]] = {}
    for name, place in places:
        sums = (place.n, place.log_sum, place.log_squares)
        by_prefix.setdefault(place.prefix, []).append((name, place.host, place.worker, sums))
    kinds: dict[str, Callable[[tuple[str, str | None, str | None, _Sums]], Hashable]] = {
        "run": lambda row: row[0],
        "host": lambda row: row[1],
        "worker": lambda row: None if row[2] is None else (row[1], row[2]),
    }
    for prefix, rows in by_prefix.items():
        for by, part_of in kinds.items():
            parts: dict[Hashable, _Sums] = {}
            for row in rows:
                known = parts.get(part_of(row), (0.0, 0.0, 0.0))
                parts[part_of(row)] = tuple(map(sum, zip(known, row[3], strict=True)))  # type: ignore[assignment]
            share = None if None in parts else _explained(parts.values())
            if share is not None:
                yield Explained(prefix, by, share, sum(int(row[3][0]) for row in rows))
    yield from _by_size(group)


def _explained(parts: Iterable[_Sums]) -> float | None:
    """Return the share of the variance between parts (omega squared); None if it is unknown.

    >>> round(_explained([(10, 10.0, 11.0), (10, 20.0, 41.0)]), 2)
    0.69
    """
    rows = list(parts)
    n, total, squares = (sum(column) for column in zip(*rows, strict=True))
    whole = squares - total**2 / n
    between = sum(part[1] ** 2 / part[0] for part in rows) - total**2 / n
    free = n - len(rows)
    if len(rows) < 2 or n < _LEAST_EXECUTIONS or free < 1 or whole <= 0:  # noqa: PLR2004
        return None
    error = max(0.0, whole - between) / free
    return float(min(1.0, max(0.0, (between - (len(rows) - 1) * error) / (whole + error))))


def _by_size(group: Group) -> Iterator[Explained]:
    sums: dict[str, list[float]] = {}
    for run in group.runs:
        for each in run.values.sizes:
            row = [each.n, each.x, each.y, each.xx, each.xy, each.yy]
            known = sums.get(each.prefix, [0.0] * len(row))
            sums[each.prefix] = [a + b for a, b in zip(known, row, strict=True)]
    for prefix, (n, x, y, xx, xy, yy) in sums.items():
        sxx, sxy, syy = xx - x * x / n, xy - x * y / n, yy - y * y / n
        # The sums of equal sizes differ by rounding alone.
        if n >= _LEAST_EXECUTIONS and sxx > 1e-9 * max(1.0, xx) and syy > 1e-9 * max(1.0, yy):
            share = min(1.0, sxy * sxy / (sxx * syy))
            yield Explained(prefix, "input size", _less_chance(share, int(n), 1), int(n))


def _less_chance(share: float, n: int, n_terms: int) -> float:
    return max(0.0, 1 - (1 - share) * (n - 1) / (n - 1 - n_terms))


def _of_runs(group: Group) -> Iterator[Explained]:
    starts = [run.start for run in group.runs]
    n = len(starts)
    if n < _LEAST_FOR_TREND or any(start is None for start in starts):
        return
    y = np.log([run.makespan_seconds for run in group.runs])
    y = y - y.mean()
    if not y.any():
        return
    yield Explained("", "order", _fit(y, [np.arange(n, dtype=float)]), n)
    hours = np.array([s.timestamp() / 3_600 for s in starts if s is not None])
    times_of_day = np.sort(hours % 24)
    widest_gap = float(np.diff(times_of_day, append=times_of_day[0] + 24).max())
    if n >= _LEAST_FOR_DAY and 24 - widest_gap >= _LEAST_HOURS:
        angle = hours * (math.pi / 12)
        yield Explained("", "time of day", _fit(y, [np.sin(angle), np.cos(angle)]), n)


def _fit(y: NDArray[np.float64], terms: list[NDArray[np.float64]]) -> float:
    """Return the share of y's variance that a linear function of the terms explains."""
    x = np.stack([term - term.mean() for term in terms], axis=1)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return _less_chance(1 - float(left @ left) / float(y @ y), len(y), len(terms))


def _schedule(samples: list[Sample]) -> Schedule:
    pairs = list(combinations(range(len(samples)), 2))
    pairs = pairs[:: max(1, len(pairs) // _MOST_PAIRS)]
    common, placements, orders = [], [], []
    for i, j in pairs:
        one, other = samples[i], samples[j]
        ids, a, b = np.intersect1d(one.ids, other.ids, return_indices=True)
        common.append(len(ids))
        if len(ids) < _LEAST_COMMON:
            continue
        rand = _adjusted_rand(np.array(one.workers)[a], np.array(other.workers)[b])
        if rand is not None:
            placements.append(rand)
        ranks = [np.argsort(np.argsort(np.array(s.order)[k])) for s, k in ((one, a), (other, b))]
        orders.append(float(np.corrcoef(ranks[0], ranks[1])[0, 1]))
    return Schedule(
        int(median(common)) if common else 0,
        float(np.mean(placements)) if placements else None,
        float(np.mean(orders)) if orders else None,
    )


def _adjusted_rand(one: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    """Return how alike two divisions of the same tasks among workers are; None for one worker.

    >>> _adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """

    def pairs(counts: NDArray[np.int64]) -> float:
        return float((counts * (counts - 1) // 2).sum())

    table = np.zeros((int(one.max()) + 1, int(other.max()) + 1), np.int64)
    np.add.at(table, (one, other), 1)
    n = len(one)
    rows, columns = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / (n * (n - 1) / 2)
    most = (rows + columns) / 2
    return None if most == expected else float((pairs(table) - expected) / (most - expected))
