"""Runs, tables and tasks display themselves in a real kernel, also without ipywidgets."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")

from tests.support.notebooks import WITHOUT_WIDGETS, outputs_of, printed, shown
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

#: DuckDB's own answer to the statement that switches its progress bar off.
TRAP = """
import duckdb
try:
    duckdb.connect().execute("set enable_progress_bar = false")
except duckdb.Error as error:
    print(error)
"""
BAR = "run.sql(\"select current_setting('enable_progress_bar') as bar\").to_arrow().to_pylist()"
TASK = "run.task(run.tasks.to_arrow()['key'][0].as_py())"


def opening(folder: Path) -> str:
    """Make a run in a folder; return the cell that opens it."""
    return f"import dask_strata\nrun = dask_strata.open_run({str(small_run(folder / 'run'))!r})"


def test_a_run_its_tables_and_tasks_are_shown_without_ipywidgets(tmp_path: Path) -> None:
    """Where DuckDB refuses to switch off its progress bar, which needs ipywidgets, all is shown."""
    _, trap, _, *displays, bar, text = outputs_of(
        tmp_path,
        WITHOUT_WIDGETS,
        TRAP,
        opening(tmp_path),
        "run",
        "run.tasks",
        TASK,
        BAR,
        f"print({TASK})",
    )
    assert "ipywidgets" in printed(trap), "this DuckDB needs no mend: simplify hide_progress"
    for display in displays:
        assert [o.output_type for o in display] == ["execute_result"], printed(display)
        [html] = shown(display, "text/html")
        assert "<" in html
    assert shown(bar) == ["[{'bar': False}]"]
    assert "scheduler" in printed(text)


def test_no_progress_bar_is_shown_with_ipywidgets(tmp_path: Path) -> None:
    """Where DuckDB's progress bar would be shown between answers, it is off."""
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed: pip install ipywidgets")
    opened = opening(tmp_path)
    cell = "import duckdb\nduckdb.sql(\"select current_setting('enable_progress_bar')\").fetchall()"
    usual, _, bar = outputs_of(tmp_path, cell, opened, BAR)
    assert shown(usual) == ["[(True,)]"]
    assert shown(bar) == ["[{'bar': False}]"]
