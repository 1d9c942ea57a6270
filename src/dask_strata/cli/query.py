"""``dask-strata query``: SQL queries over the tables of a run."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.words import count
from dask_strata.run import open_run


@click.command("query")
@run_argument
@click.argument("sql")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@table_options()
def command(run: str, sql: str, form: str, output: Path | None, view: TableView) -> None:
    """Run an SQL query (DuckDB) over the tables of a run.

    `dask-strata tables` lists the tables and their columns. Queries are read-only.

    \b
    Examples:
      dask-strata query RUN 'select prefix, count(*), sum(compute_seconds) from tasks group by 1'
      dask-strata query RUN 'describe attempts'
    """
    found = open_run(run).sql(sql)
    write_rows(found.to_arrow(), form, output, count(len(found), "row"), view)
