"""The summary of synthetic runs, and their insights."""

from __future__ import annotations

from pathlib import Path

from dask_strata import open_run
from dask_strata.analysis.breakdown import prefixes
from dask_strata.analysis.list import list_runs
from dask_strata.analysis.map import metadata_map
from dask_strata.analysis.summary import summarize
from tests.analysis.one_worker import W, one_worker
from tests.support.synthetic import life, moves, new_run


def test_an_empty_run_has_answers(tmp_path: Path) -> None:
    """A run whose recording was killed at once has a summary, a map and a row in the list."""
    folder = new_run(tmp_path / "runs" / "r")
    run = open_run(folder)
    summary = summarize(run)
    assert (summary.n_tasks, summary.state) == (0, "cut")
    assert not summary.check.ok
    assert all(cell.total == 0 for cell in metadata_map(run))
    assert list_runs(tmp_path / "runs").to_pylist()[0]["tasks"] == 0


def test_the_summary_has_failures_and_insights(tmp_path: Path) -> None:
    """Failures and stragglers are found, and failures are counted once."""
    rows = [r for i in range(5) for r in life(f"p-{i}", 1, 1.1, W)]
    rows += life("p-9", 2, 9, W)
    rows += moves(
        "bad-1", (3, "waiting", "processing"), (4, "processing", "erred"), exception="E('x')"
    )
    rows += moves("late-1", (4, "waiting", "erred"), exception="E('x')", blame="bad-1")
    run_folder = one_worker(tmp_path / "r", rows)
    summary = summarize(open_run(run_folder))
    assert summary.n_erred == 2
    assert [(f.count, f.exception, f.example) for f in summary.failures] == [(1, "E('x')", "bad-1")]
    assert any("times the median" in f.text for f in summary.insights)
    assert {p.prefix for p in prefixes(open_run(run_folder))} == {"p", "bad", "late"}


def test_unfinished_tasks_are_counted(tmp_path: Path) -> None:
    """Tasks that were released before they had a result count; data from before do not."""
    rows = [
        *life("done-1", 1, 2, W),
        *moves("gone-1", (1, "released", "waiting"), (3, "waiting", "released")),
        *moves("given-1", (1, "memory", "released"), (2, "released", "forgotten")),
    ]
    summary = summarize(open_run(one_worker(tmp_path / "r", rows)))
    assert (summary.n_tasks, summary.n_unfinished, summary.n_erred) == (2, 1, 0)
    assert summary.n_finished_before == 1
