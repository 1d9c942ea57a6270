"""``dask-strata list``: the runs in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dask_strata.analysis.list import list_runs
from dask_strata.errors import NotARunError
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.words import count
from dask_strata.store.copies.place import is_url, local_path, shown, split_run
from dask_strata.store.manifest import MANIFEST


@click.command("list")
@click.argument("runs", default="runs")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def command(runs: str, form: str, output: Path | None) -> None:
    """List the runs in a folder (by default: runs), with start, duration, tasks, size and state.

    RUNS can be a URL.

    \b
    Examples:
      dask-strata list runs/
      dask-strata list s3://bucket/runs
    """
    if not is_url(runs) and not local_path(runs).is_dir():
        raise NotARunError(f"No such folder: {runs}", hint="Record a run: dask-strata demo")
    found = list_runs(runs)
    if not len(found):
        raise NotARunError(
            f"There is no run in {shown(runs)}.", hint="Record a run: dask-strata demo"
        )
    name = found["run"][-1].as_py()
    if is_url(runs):
        newest = runs if split_run(runs)[1] == name else f"{runs.rstrip('/')}/{name}"
    else:
        folder = local_path(runs)
        newest = str(folder if (folder / MANIFEST).is_file() else folder / name)
    note = f"{count(len(found), 'run')}; next: dask-strata show {shlex.quote(shown(newest))}"
    write_rows(found, form, output, note)
