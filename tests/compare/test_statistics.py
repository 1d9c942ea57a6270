"""Tests of the statistics against SciPy and against simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu, permutation_test

from dask_strata.analysis.compare.statistics import (
    LEVEL,
    adjusted,
    least_detectable,
    p_value,
    ratio_interval,
)

VALUES = st.lists(st.floats(0.1, 100), min_size=1, max_size=9, unique=True)


@given(VALUES, VALUES)
def test_p_equals_scipys(first: list[float], second: list[float]) -> None:
    second = [value + 0.01234 for value in second if value + 0.01234 not in first]
    if second:
        expected = mannwhitneyu(first, second, method="exact").pvalue
        assert p_value(first, second) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_p_with_equal_values_equals_scipys_permutations(seed: int) -> None:
    draws = np.random.default_rng(seed)
    first, second = draws.integers(1, 5, 6).tolist(), draws.integers(1, 6, 7).tolist()

    def statistic(x: np.ndarray, y: np.ndarray) -> float:
        return float(mannwhitneyu(x, y, method="asymptotic").statistic)

    expected = permutation_test((first, second), statistic, n_resamples=np.inf, vectorized=False)
    assert p_value(first, second) == pytest.approx(expected.pvalue, abs=1e-12)


def test_p_of_large_groups_equals_scipys() -> None:
    draws = np.random.default_rng(3)
    first, second = draws.normal(size=120).tolist(), draws.normal(0.2, size=110).tolist()
    expected = mannwhitneyu(first, second, method="asymptotic").pvalue
    assert p_value(first, second) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "least"), [(3, 0.1), (4, 0.0286), (5, 0.0079), (7, 0.00058)])
def test_the_least_p(n: int, least: float) -> None:
    assert p_value([*range(n)], [*range(n, 2 * n)]) == pytest.approx(least, rel=0.02)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=20))
def test_adjusted_p_equals_scipys(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    expected = false_discovery_control(known).tolist() if known else []
    found = adjusted(values)
    assert [each is None for each in found] == [each is None for each in values]
    assert [each for each in found if each is not None] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [4, 5, 6, 8, 10])
def test_intervals_cover_the_truth(n: int) -> None:
    """In 93 to 97 % of 1,000 simulated comparisons."""
    draws, covered = np.random.default_rng(n), 0
    for _ in range(1000):
        first = draws.lognormal(0, 0.1, n).tolist()
        second = (1.2 * draws.lognormal(0, 0.1, n)).tolist()
        low, high, _ = ratio_interval(first, second) or (0, 0, 0)
        covered += low <= 1.2 <= high
    assert 930 <= covered <= 970


@pytest.mark.parametrize(("n", "n_tests"), [(4, 1), (5, 1), (8, 1), (8, 10), (10, 3)])
def test_a_change_of_the_least_detectable_size_is_found_in_four_of_five(
    n: int, n_tests: int
) -> None:
    """The spread is estimated from each pair of groups, so that the share is not exact."""
    draws, found = np.random.default_rng(n), 0
    reference = draws.lognormal(0, 0.05, (2, 500)).tolist()
    spread = float(np.std(np.log(reference), ddof=1))
    for _ in range(500):
        one, other = draws.lognormal(0, spread, (2, n)).tolist()
        least = least_detectable(one, other, n_tests)
        assert least is not None
        first, second = draws.lognormal(0, spread, (2, n))
        found += p_value(first.tolist(), (least * second).tolist()) <= LEVEL / n_tests
    assert 0.68 <= found / 500 <= 0.9


def test_few_runs_and_many_tests_show_nothing() -> None:
    assert least_detectable([1, 1.1, 1.2, 1.3], [1, 1.1, 1.2, 1.3], n_tests=20) == math.inf
    assert least_detectable([0, 1, 1, 1], [1, 1, 1, 1]) is None
    assert ratio_interval([1, 2, 3], [1, 2, 3]) is None
    assert ratio_interval([0, 1, 2, 3], [1, 2, 3, 4]) is None
