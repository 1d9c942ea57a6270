"""``dask-strata list``: the runs in a folder."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dask_strata.analysis.list import COLUMNS, IMPORTANT, MORE, list_rows, table_of
from dask_strata.cli.run_names import runs_argument
from dask_strata.cli.table_options import table_options
from dask_strata.errors import NotARunError
from dask_strata.report.formats import OF_ROWS, TABLE
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.terminal.table import print_table
from dask_strata.report.words import count
from dask_strata.store.copies.place import is_url, local_path, shown, split_run
from dask_strata.store.manifest import MANIFEST
from dask_strata.store.zipped.copy import is_bundle

_FORMAT = click.Choice([output_format.name for output_format in OF_ROWS])


@click.command("list")
@runs_argument
@click.option("--format", "form", type=_FORMAT, default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@table_options((*COLUMNS, *MORE))
def command(runs: str, form: str, output: Path | None, view: TableView) -> None:
    """List the runs in a folder, with outcome, start, duration, tasks and size.

    Other commands take the number of a run, 1 for the newest, in place of its path; also `latest`,
    the start of its id, or a part of its name that no other run has.

    RUNS can be a URL. A run can be a folder or a bundle (*.strata.zip).

    \b
    Examples:
      dask-strata list runs/
      dask-strata list s3://bucket/runs
    """
    if not is_url(runs):
        _require_runs(local_path(runs))
    rows = list_rows(runs)
    if not rows:
        raise NotARunError(
            f"There is no run in {shown(runs)}.", hint="Record a run: dask-strata demo"
        )
    name = rows[-1]["run"]
    if is_url(runs):
        newest = runs if split_run(runs)[1] == name else f"{runs.rstrip('/')}/{name}"
    else:
        folder = local_path(runs)
        is_run = folder.is_file() or (folder / MANIFEST).is_file()
        newest = str(folder if is_run else folder / name)
    view = replace(view, important=IMPORTANT)
    note = f"{count(len(rows), 'run')}; next: dask-strata show {shlex.quote(shown(newest))}"
    if form == TABLE.name and output is None:
        has_problem = any(row.get("problem") is not None for row in rows)
        known = {**COLUMNS, **MORE} if view.has_all else COLUMNS
        columns = {n: known[n] for n in known if n != "problem" or has_problem or view.columns}
        view = replace(view, others=tuple(MORE))
        print_table(columns, [_values(row) for row in rows], note, view)
        return
    from dask_strata.report.rows import write_rows  # imports Arrow

    write_rows(table_of(rows), form, output, note, view)


def _require_runs(place: Path) -> None:
    """Check that a place is a bundle, or a folder that can be read."""
    if is_bundle(place):
        return
    if not place.is_dir():
        raise NotARunError(f"No such folder: {place}", hint="Record a run: dask-strata demo")
    try:
        os.scandir(place).close()
    except OSError as error:
        raise NotARunError(
            f"{place} cannot be read: {error.strerror}.",
            hint=f"Look at its permissions: ls -ld {shlex.quote(str(place))}",
        ) from None


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row; times have milliseconds, as in the other formats."""
    values = {name: row.get(name) for name in (*COLUMNS, *MORE)}
    if (start := values["start"]) is not None:
        values["start"] = start.replace(microsecond=start.microsecond // 1000 * 1000)
    values["tags"] = ", ".join(values["tags"] or ()) or None
    return values
