"""What workers did over time: two runs on one time axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dask_strata import open_run
from dask_strata.analysis.compare import lanes
from dask_strata.analysis.compare.lanes import lanes_of
from dask_strata.report.comparison.page import Strip
from tests.support.synthetic import small_run


@pytest.mark.parametrize("seed", range(5))
def test_busy_threads_are_the_overlaps_of_executions(seed: int) -> None:
    """Each piece of time has the sum of the overlaps, one execution after the other."""
    draws = np.random.default_rng(seed)
    n, span = 200, 10_000
    start = draws.integers(-500, span, n)
    found = {
        "worker": draws.integers(0, 3, n),
        "prefix": draws.integers(0, 4, n),
        "start": start,
        "stop": start + draws.integers(1, 3_000, n),
    }
    busy = lanes._busy(found, 4, 0, span)
    edges = np.linspace(0, span, lanes._BINS + 1)
    for worker in range(3):
        for prefix in range(4):
            expected = np.zeros(lanes._BINS)
            for i in np.flatnonzero((found["worker"] == worker) & (found["prefix"] == prefix)):
                first = np.maximum(edges[:-1], found["start"][i])
                last = np.minimum(edges[1:], found["stop"][i])
                expected += np.maximum(0, last - first) / (span / lanes._BINS)
            assert busy[worker][prefix] == pytest.approx(expected, abs=1e-6)


def test_lanes_of_a_run_made_by_hand(tmp_path: Path) -> None:
    """One task runs from 1 to 5 s, another one of the same worker from 2 to 6 s."""
    found = lanes_of(open_run(small_run(tmp_path / "run")))
    assert found is not None
    assert (found.span_seconds, found.n_more, list(found.workers)) == (5.0, 0, ["w"])
    blocks = [(b.prefix, b.start_seconds, b.stop_seconds) for b in found.workers["w"]]
    assert blocks == [("a", 0, 4), ("b", 4, 5)]
    assert found.prefixes == ("a", "b")


def test_the_smallest_number_has_a_place_on_an_axis() -> None:
    """Four fifths of it is the number itself, so that the axis has no length."""
    smallest = 5e-324
    strip = Strip("compute", 0.8 * smallest, smallest, "seconds", ())
    assert strip.least == strip.most
    assert strip.place(smallest) == 1
    assert Strip("compute", 2.0, 4.0, "seconds", ()).place(3.0) == 0.5
