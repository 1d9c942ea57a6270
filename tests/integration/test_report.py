"""The critical path and the page of runs that were really recorded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from distributed import Client  # noqa: TC002  a fixture's type, as in other tests

import dask_strata
from dask_strata.analysis.breakdown import breakdown
from dask_strata.analysis.critical_path import critical_path
from dask_strata.report.page import make_page


def nap(seconds: float, *_needs: float) -> float:
    """Sleep, and say for how long."""
    time.sleep(seconds)
    return seconds


def test_a_recorded_chain_is_its_naps(client: Client, runs: Path) -> None:
    """Two naps in a row, a pause of the client, a nap: seconds go where they belong."""
    with dask_strata.record(runs, client=client) as run:
        began = time.time()
        first = client.submit(nap, 0.6, key="first")
        beside = client.submit(nap, 0.1, key="beside")
        assert client.submit(nap, 0.5, first, beside, key="second").result() == 0.5
        time.sleep(0.7)
        assert client.submit(nap, 0.4, key="third").result() == 0.4
        took = time.time() - began
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds, rel=0.01)
    assert path.makespan_seconds <= took
    assert path.makespan_seconds == pytest.approx(took, abs=0.3)
    assert path.seconds["compute"] == pytest.approx(1.5, abs=0.2)
    assert path.seconds["nothing submitted"] == pytest.approx(0.7, abs=0.2)
    order = list(dict.fromkeys(s.key for s in path.segments if s.cause == "compute"))
    assert order == ["first", "second", "third"]
    for a, b in zip(path.segments, path.segments[1:], strict=False):
        assert a.stop == b.start


def test_worker_seconds_of_a_recorded_run_add_up(client: Client, runs: Path) -> None:
    """Prefixes and idleness together are threads times duration; compute is what was slept."""
    with dask_strata.record(runs, client=client) as run:
        client.gather(client.map(nap, [0.2 + n / 1000 for n in range(8)]))
    spent = breakdown(run)
    parts = sum(p.total_seconds for p in spent.prefixes) + spent.seconds["idle"]
    assert parts == pytest.approx(spent.total_seconds)
    assert spent.seconds["compute"] == pytest.approx(1.6, abs=0.3)
    page = make_page(run)
    assert "All tasks succeeded." in page
    assert len(page) < 300_000
