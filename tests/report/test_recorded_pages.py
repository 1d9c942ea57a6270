"""The critical path and the page of recorded runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client  # noqa: TC002  a fixture's type, as in other tests

import dask_strata
from dask_strata.analysis.breakdown import PREFIX_KINDS, breakdown
from dask_strata.analysis.critical_path.walk import critical_path
from dask_strata.report.page.page import make_page

pytestmark = pytest.mark.long


def nap(seconds: float, *_needs: float) -> float:
    """Sleep, and return the time slept."""
    time.sleep(seconds)
    return seconds


def test_a_recorded_chain_is_its_naps(client: Client, runs: Path) -> None:
    """Two naps in a row, a pause of the client, a nap: each second has its cause."""
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
    # Tolerate 0.1 s: Dask's estimate of a worker's clock is wrong by that on a loaded machine.
    assert 0.75 < path.seconds["compute"] < took - 0.6
    assert path.seconds["nothing submitted"] > 0.6
    for row in run.rows("select key, compute_seconds from attempts"):
        on_path = sum(
            (s.stop - s.start) / 1e9
            for s in path.segments
            if s.key == row["key"] and s.cause == "compute"
        )
        assert on_path <= row["compute_seconds"] + 1e-3
    order = list(dict.fromkeys(s.key for s in path.segments if s.cause == "compute"))
    assert order == ["first", "second", "third"]
    for a, b in zip(path.segments, path.segments[1:], strict=False):
        assert a.stop == b.start


def test_worker_seconds_of_a_recorded_run_add_up(client: Client, runs: Path) -> None:
    """Prefixes and idle time add up to threads times duration; compute is the time slept."""
    with dask_strata.record(runs, client=client) as run:
        client.gather(client.map(nap, [0.2 + n / 1000 for n in range(8)]))
    spent = breakdown(run)
    rest = sum(seconds for kind, seconds in spent.seconds.items() if kind not in PREFIX_KINDS)
    assert rest + sum(p.total_seconds for p in spent.prefixes) == pytest.approx(spent.total_seconds)
    [row] = run.rows("select sum(compute_seconds) as slept from attempts")
    assert row["slept"] == pytest.approx(1.6, abs=0.3)
    # Time outside of its attempt does not count, where Dask's estimate of a clock is wrong.
    assert 0 < spent.seconds["compute"] <= row["slept"] + 0.001
    page = make_page(run)
    assert "All tasks succeeded." in page
    assert len(page) < 300_000


def test_record_with_report_writes_the_page(
    strata: Callable[..., subprocess.CompletedProcess[str]],
    script: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """`record --report` prints the page's path; the exit status is the script's."""
    path = script("""
        from distributed import Client

        if __name__ == "__main__":
            with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
                client.submit(abs, -1).result()
            raise SystemExit(7)
    """)
    done = strata("record", "--report", "-o", "runs", path)
    assert done.returncode == 7
    (folder,) = [entry for entry in (tmp_path / "runs").iterdir() if entry.is_dir()]
    page = folder.with_name(f"{folder.name}.html")
    assert "failed (exit 7)" in page.read_text(encoding="utf-8")
    assert f"{folder.name}.html: open it in a browser" in done.stderr
    assert strata("list", "runs", "--format", "json", check=True).stdout.count('"run"') == 1
