"""Statistics of two small groups of runs: exact, by ranks, for positive values of any distribution.

The run is the unit. The test is Mann and Whitney's, by the permutation distribution of the ranks,
with mean ranks for equal values. The interval of the ratio inverts it: its ends are order
statistics of the ratios of all pairs of runs (Hodges and Lehmann, on logarithms).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Least number of runs of each group for a test: with 3, p is never less than 0.1.
LEAST_RUNS = 4

#: Level below which p counts as a difference.
LEVEL = 0.05

#: Coverage that an interval has as nearly as the number of runs allows.
COVERAGE = 0.95

#: Share of changes of the least detectable size that a comparison finds.
POWER = 0.8

#: Product of the numbers of runs up to which the distribution is exact.
_MOST_PAIRS = 10_000

_DRAWS = 2_000


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of Mann and Whitney's test of two groups.

    Parameters
    ----------
    first, second : sequence of float
        Values of the runs of each group; none is empty.

    Examples
    --------
    >>> round(p_value([1, 2, 3, 4], [5, 6, 7, 8]), 4)
    0.0286
    """
    n, m = len(first), len(second)
    # Twice the mean ranks are whole numbers.
    _, inverse, counts = np.unique(
        np.array([*first, *second], float), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    ranks = (2 * last - counts + 1)[inverse]
    found = int(ranks[:n].sum())
    if n * m > _MOST_PAIRS:
        mean, ties = n * (n + m + 1), float(((counts**3) - counts).sum())
        variance = n * m / 3 * ((n + m + 1) - ties / ((n + m) * (n + m - 1)))
        if not variance:
            return 1.0
        return min(1.0, 2 * NormalDist().cdf(-(abs(found - mean) - 1) / math.sqrt(variance)))
    counted = _rank_sums(tuple(sorted(ranks.tolist())), n)
    whole = counted.sum()
    tail = min(counted[: found + 1].sum(), counted[found:].sum()) / whole
    return min(1.0, 2 * float(tail))


def ratio_interval(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float, float, float] | None:
    """Return an interval of the ratio of the second group's values to the first's.

    Parameters
    ----------
    first, second : sequence of float
        Values of the runs of each group.

    Returns
    -------
    tuple of (low, high, coverage) or None
        None if a group has less than `LEAST_RUNS` values, or a value is not positive.

    Examples
    --------
    >>> low, high, coverage = ratio_interval([1.0, 1.1, 1.2, 1.3], [2.0, 2.2, 2.4, 2.6])
    >>> round(low, 2), round(high, 2), round(coverage, 3)
    (1.67, 2.4, 0.943)
    """
    if min(len(first), len(second)) < LEAST_RUNS or min(*first, *second) <= 0:
        return None
    logs = np.log(np.array(second, float))[:, None] - np.log(np.array(first, float))[None, :]
    ratios = np.exp(np.sort(logs.ravel()))
    skipped, coverage = _skipped(len(first), len(second))
    return float(ratios[skipped]), float(ratios[-1 - skipped]), coverage


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number, by Benjamini and Hochberg; None stays None.

    Parameters
    ----------
    p_values : sequence of float or None
        The p-values of one family of tests.

    Examples
    --------
    >>> adjusted([0.01, None, 0.04, 0.03])
    [0.03, None, 0.04, 0.04]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    found: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank in range(len(known), 0, -1):
        p, i = known[rank - 1]
        least = min(least, p * len(known) / rank)
        found[i] = least
    return found


def least_detectable(
    first: Sequence[float], second: Sequence[float], n_tests: int = 1
) -> float | None:
    """Return the ratio from which a change would be found in four of five comparisons.

    Parameters
    ----------
    first, second : sequence of float
        Values of the runs of each group, all positive.
    n_tests : int
        Number of tests of the family; a change of this value alone is assumed.

    Returns
    -------
    float or None
        Infinite if so few runs show no change, however large; None if a value is not positive.

    Examples
    --------
    >>> least_detectable([1.0, 1.1, 1.2, 1.3], [1.0, 1.1, 1.2, 1.3], n_tests=20)
    inf
    """
    if not first or not second or min(*first, *second) <= 0:
        return None
    n, m = len(first), len(second)
    effect = _effect_seen(n, m, LEVEL / n_tests)
    groups = (np.log(np.array(first, float)), np.log(np.array(second, float)))
    squares = sum(float(((g - g.mean()) ** 2).sum()) for g in groups)
    spread = math.sqrt(squares / (n + m - 2)) if n + m > 2 else 0.0  # noqa: PLR2004
    return math.exp(min(effect * spread, 700.0)) if math.isfinite(effect) else math.inf


@lru_cache(64)
def _rank_sums(ranks: tuple[int, ...], n: int) -> NDArray[np.float64]:
    """Return the number of choices of n ranks, which ascend, by their sum."""
    counted = np.zeros((n + 1, sum(ranks[-n:]) + 1))
    counted[0, 0] = 1
    for each in ranks:
        counted[1:, each:] += counted[:-1, : counted.shape[1] - each].copy()
    sums: NDArray[np.float64] = counted[n].copy()  # without the rest of the table
    return sums


@lru_cache(256)
def _null(n: int, m: int) -> NDArray[np.float64]:
    """Return the probabilities of Mann and Whitney's U, if all values differ."""
    counted = _rank_sums(tuple(range(1, n + m + 1)), n)[n * (n + 1) // 2 :]
    shares: NDArray[np.float64] = counted / counted.sum()
    return shares


@lru_cache(256)
def _skipped(n: int, m: int) -> tuple[int, float]:
    """Return how many ratios are outside an interval on each side, and its coverage."""
    if n * m > _MOST_PAIRS:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        half = NormalDist().inv_cdf((1 + COVERAGE) / 2)
        return max(0, int(n * m / 2 - half * spread)), COVERAGE
    coverages = 1 - 2 * np.cumsum(_null(n, m)[: n * m // 2])
    best = int(np.argmin(np.abs(coverages - COVERAGE)))
    return best, float(coverages[best])


@lru_cache(256)
def _effect_seen(n: int, m: int, level: float) -> float:
    """Return the shift, in standard deviations, that the test finds with the power `POWER`.

    Normal groups are drawn. A shift is found as soon as so many pairs are in its order that p is at
    most the level: the least such shift of each draw is one of the differences of its pairs.
    """
    if n * m > _MOST_PAIRS:
        normal = NormalDist()
        ends = normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)
        return ends * math.sqrt((1 / n + 1 / m) * math.pi / 3)
    tails = 2 * np.cumsum(_null(n, m))
    wrong = int(np.searchsorted(tails, level, side="right")) - 1
    if wrong < 0:
        return math.inf
    draws = np.random.default_rng(0)
    first, second = draws.normal(size=(_DRAWS, n, 1)), draws.normal(size=(_DRAWS, 1, m))
    shifts = np.sort((first - second).reshape(_DRAWS, n * m), axis=1)[:, n * m - 1 - wrong]
    return max(0.0, float(np.quantile(shifts, POWER)))
