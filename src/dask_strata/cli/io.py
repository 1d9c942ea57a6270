"""``dask-strata io``: input and output of tasks, as Darshan traced it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from dask_strata.analysis.io import BY, require_logs, select_io, summarize_io
from dask_strata.analysis.tasks import ordered
from dask_strata.analysis.timeline.traffic import moved
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.report.io import print_io
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("io")
@run_argument
@click.option("--by", type=click.Choice(BY), help="Show rows, one per task, prefix, …; see below.")
@click.option(
    "--sort",
    metavar="COL",
    help="Show rows, sorted by this column, largest first; -COL for smallest first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show; 0 for all.  [default: 50 in a table, else 0]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Show rows in this format.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write rows to this file.")
@table_options()
def command(  # noqa: PLR0913, PLR0917
    run: str,
    by: str | None,
    sort: str | None,
    limit: int | None,
    form: str | None,
    output: Path | None,
    view: TableView,
) -> None:
    """Show the bytes of all Darshan logs, and those that tasks read and wrote, with insights.

    The run needs Darshan logs: dask-strata import --into RUN LOGS. With any option: rows, by
    default one per task, see --by. Rows by total contain all bytes of all logs, by host and by the
    evidence for their task or process, or the reason that there is none.

    \b
    Examples:
      dask-strata io RUN
      dask-strata io RUN --by file --sort small_reads --limit 10
      dask-strata io RUN --by total --format json
      dask-strata io RUN --format parquet -o io.parquet
    """
    opened = open_run(run)
    require_logs(opened)
    if (
        by is None
        and sort is None
        and limit is None
        and form is None
        and output is None
        and view == TableView()
    ):
        io = summarize_io(opened)
        if io is not None:
            print_io(io, moved(opened), run, console())
        return
    by = by or "task"
    table = select_io(opened, by)
    if sort:
        table = ordered(table, sort)
    total = len(table)
    brief = form in (None, "table") and output is None
    limit = (50 if brief else 0) if limit is None else limit
    table = table.slice(0, limit) if limit else table
    left = total - len(table)
    note = f"{left:,} more; --limit 0 shows all" if left else f"{total:,} rows, one per {by}"
    by_sort = () if sort is None else (sort.removeprefix("-"),)
    view = replace(view, important=(table.column_names[0], *by_sort))
    write_rows(table, form or "table", output, note, view)
