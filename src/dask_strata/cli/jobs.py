"""``dask-strata jobs``: batch jobs, one row each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from dask_strata.analysis.jobs import absent_workers, summarize_jobs
from dask_strata.analysis.jobs.jobs import select_jobs
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.words import visible
from dask_strata.run import open_run
from dask_strata.schema import TABLES


@click.command("jobs")
@run_argument
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@table_options("jobs")
def command(run: str, form: str, output: Path | None, view: TableView) -> None:
    """Show batch jobs: states, waits, limits, workers and tasks of each.

    \b
    Examples:
      dask-strata jobs RUN
      dask-strata jobs RUN --format json
    """
    opened = open_run(run)
    found = select_jobs(opened, brief=form == "table" and output is None and not view.has_all)
    names = (column.name for column in TABLES["jobs"].all_columns)
    view = replace(view, others=tuple(n for n in names if n not in found.column_names))
    summary = summarize_jobs(opened)
    notes = ["no batch job is on record" if summary is None else summary.sentence]
    notes += [absent.sentence for absent in absent_workers(opened)]
    write_rows(found, form, output, "\n".join(map(visible, notes)), view)
