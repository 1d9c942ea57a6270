"""Means and peaks of intervals in bins, compared with loops over all bins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.analysis.timeline.bins import Bins, Means, Peaks

T0 = 1_795_000_000_000_000_000

intervals = st.lists(
    st.tuples(
        st.integers(-1, 2),
        st.integers(-50, 150),
        st.integers(-5, 120),
        st.one_of(st.just(math.nan), st.floats(0, 1e6)),
    ),
    max_size=20,
)


@given(intervals, st.integers(1, 130), st.integers(1, 12))
def test_means_and_peaks_are_those_of_loops(
    rows: list[tuple[int, int, int, float]], span: int, n: int
) -> None:
    """Amounts, covered time, means and largest values of each subject and bin."""
    bins = Bins(T0, span, n)
    assert bins.step * n >= span > bins.step * n - n
    means, peaks = Means(3, bins), Peaks(3, bins)
    subject, a, length, value = (np.array(c) for c in zip(*rows, strict=True)) if rows else (
        np.array([], np.int64), np.array([], np.int64), np.array([], np.int64), np.array([])
    )  # fmt: skip
    means.add(subject, T0 + a, T0 + a + length, value)
    peaks.add(subject, T0 + a, T0 + a + length, value)
    for of in range(3):
        for bin_ in range(n):
            low, high = bin_ * bins.step, (bin_ + 1) * bins.step
            parts = [
                (min(start + wide, high) - max(start, low), wide, v)
                for who, start, wide, v in rows
                if who == of
                and wide > 0
                and not math.isnan(v)
                and start < high
                and start + wide > low
            ]
            assert means.covered()[of, bin_] == sum(ns for ns, _, _ in parts)
            amount = sum(v * ns / wide for ns, wide, v in parts)
            assert means.amounts()[of, bin_] == pytest.approx(amount, rel=1e-6, abs=1e-6)
            mean, peak = means.means()[of, bin_], peaks.values()[of, bin_]
            if not parts:
                assert math.isnan(mean)
                assert math.isnan(peak)
                assert means.amounts()[of, bin_] == 0
                continue
            covered = sum(ns for ns, _, _ in parts)
            assert mean == pytest.approx(amount / covered * 1e9, rel=1e-6, abs=1e3)
            assert peak == max(v for _, _, v in parts)
