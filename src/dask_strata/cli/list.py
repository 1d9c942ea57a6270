"""``dask-strata list``: the runs in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dask_strata.analysis.list import list_runs
from dask_strata.errors import NotARunError
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.words import count


@click.command("list")
@click.argument("runs", default="runs", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def command(runs: Path, form: str, output: Path | None) -> None:
    """List the runs in a folder (by default: runs), with start, duration, tasks, size and state.

    \b
    Example:
      dask-strata list runs/
    """
    if not runs.is_dir():
        raise NotARunError(f"No such folder: {runs}", hint="Record a run: dask-strata demo")
    found = list_runs(runs)
    if not len(found):
        raise NotARunError(f"There is no run in {runs}.", hint="Record a run: dask-strata demo")
    newest = runs if (runs / "run.json").is_file() else runs / found["run"][-1].as_py()
    note = f"{count(len(found), 'run')}; next: dask-strata show {shlex.quote(str(newest))}"
    write_rows(found, form, output, note)
