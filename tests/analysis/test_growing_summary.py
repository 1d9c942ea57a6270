"""The summary of a run that is being recorded: counts of now, times and insights of a while ago."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.overview import growing
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.summary import summarize
from dask_strata.report.summary import print_summary
from dask_strata.report.terminal.table import console
from dask_strata.run.growing import snapshot
from tests.support.synthetic import Process, life, new_run

pytestmark = pytest.mark.long

WORKER = "tcp://w:1"


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """The scheduler of a run with 100 tasks that counts as large."""
    monkeypatch.setattr(growing, "FEW_ROWS", 1)
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    found = Process(new_run(tmp_path / "r"), "scheduler-1")
    for number in range(100):
        add(found, number)
    return found


def add(process: Process, number: int) -> None:
    """Add a task of one second."""
    process.write("scheduler_transitions", life(f"a-{number}", number, number + 1, WORKER))


@pytest.mark.parametrize("same_process", [True, False])
def test_counts_are_those_of_now(process: Process, tmp_path: Path, *, same_process: bool) -> None:
    """A look soon after another one counts all tasks, and says which tasks its times are of."""
    run = open_run(tmp_path / "r")
    first = summary_of(run)
    assert first.analysed is None
    add(process, 100)
    run = run if same_process else open_run(tmp_path / "r")
    run.refresh()
    second = summary_of(run)
    assert (second.n_tasks, second.duration_seconds) == (101, first.duration_seconds + 1)
    assert second.insights == first.insights
    assert second.makespan_seconds == first.makespan_seconds
    assert second.analysed is not None
    assert second.analysed.n_tasks == 100
    assert second.analysed.duration_seconds == first.duration_seconds
    out = console()
    with out.capture() as printed:
        print_summary(second, out)
    assert "times and insights are those of the first 100 tasks, until " in printed.get()


def test_all_is_new_after_some_growth(process: Process, tmp_path: Path) -> None:
    """From a share of the record on, times and insights are computed again."""
    run = open_run(tmp_path / "r")
    summary_of(run)
    for number in range(100, 105):
        add(process, number)
    run.refresh()
    found = summary_of(run)
    assert found.analysed is None
    assert found == summarize(run)


def test_all_is_new_when_the_recording_ends(process: Process, tmp_path: Path) -> None:
    """The last screen is that of the whole run."""
    run = open_run(tmp_path / "r")
    summary_of(run)
    process.end()
    run.refresh()
    found = summary_of(run)
    assert found.state == "complete"
    assert found.analysed is None
    assert replace(found, path="") == replace(summarize(open_run(tmp_path / "r")), path="")


def test_a_damaged_file_of_a_summary_is_not_used(process: Process, tmp_path: Path) -> None:
    """All is computed."""
    run = open_run(tmp_path / "r")
    first = summary_of(run)
    folder = run.snapshot
    assert folder is not None
    (folder / growing.FILE).write_text('{"rows": 400, "summary": {"name": 3}}')
    again = open_run(tmp_path / "r")
    assert summary_of(again) == first
