"""``dask-strata chunks``: chunks of input files, their workers, times and bytes read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from dask_strata.analysis.chunks.chunks import (
    BRIEF,
    IMPORTANT,
    fileset_to_run_again,
    read_report,
    select_chunks,
    summarize_chunks,
)
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.report.chunks import print_chunks
from dask_strata.report.rows import FORMATS, write_json, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.terminal.table import console
from dask_strata.report.words import count, visible
from dask_strata.run import open_run

#: Most keys of chunks in a message.
_KEYS = 3


@click.command("chunks")
@run_argument
@click.option("--dataset", help="Only chunks of this dataset.")
@click.option("--state", help="Only chunks in this state: done, retried, failed, skipped, …")
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
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Show rows, one per chunk, in this format."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write rows to this file.")
@click.option(
    "--rerun",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write the chunks without a result to this file, as a fileset for coffea.",
)
@click.option(
    "--coffea-report",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Compare the record with coffea's own report: bytesread, entries, chunks.",
)
@table_options("chunks")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    dataset: str | None,
    state: str | None,
    sort: str | None,
    limit: int | None,
    form: str | None,
    output: Path | None,
    rerun: Path | None,
    coffea_report: Path | None,
    view: TableView,
) -> None:
    """Show the chunks of data by dataset, file and worker, with slow and failed chunks.

    With --sort, --limit, --format or -o: one row per chunk.

    \b
    Examples:
      dask-strata chunks RUN
      dask-strata chunks RUN --state skipped --rerun again.json
      dask-strata chunks RUN --coffea-report report.json
      dask-strata chunks RUN --format parquet -o chunks.parquet
    """
    opened = open_run(run)
    report = None if coffea_report is None else read_report(coffea_report)
    as_rows = (sort, limit, form, output, view) != (None, None, None, None, TableView())
    if as_rows:
        by_sort = () if sort is None else (sort.removeprefix("-"),)
        table = select_chunks(opened, dataset=dataset, state=state, sort=sort)
        total = len(table)
        brief = form in (None, "table") and output is None
        limit = (50 if brief else 0) if limit is None else limit
        table = table.slice(0, limit) if limit else table
        left = total - len(table)
        note = f"{left:,} more; --limit 0 shows all" if left else f"{total:,} chunks"
        if brief and not view.has_all:
            usual = list(dict.fromkeys([*BRIEF, *by_sort]))
            others = tuple(name for name in table.column_names if name not in usual)
            view = replace(view, others=others)
            table = table.select(usual)
        view = replace(view, important=(*IMPORTANT[:1], *by_sort, *IMPORTANT))
        write_rows(table, form or "table", output, note, view)
    if as_rows and rerun is None and report is None:
        return
    chunks = summarize_chunks(opened, dataset=dataset, state=state, report=report)
    if not as_rows:
        print_chunks(chunks, run, console())
    if rerun is not None:
        again = fileset_to_run_again(chunks)
        write_json(again.fileset, rerun)
        files = sum(len(spec["files"]) for spec in again.fileset.values())
        click.echo(f"{count(files, 'file')} to run again: {rerun}", err=True)
        if again.left_out:
            keys = ", ".join(visible(row["key"]) for row in again.left_out[:_KEYS])
            click.echo(
                f"{count(len(again.left_out), 'chunk')} left out, as their file or entries are "
                f"unknown: {keys}{', …' if len(again.left_out) > _KEYS else ''}",
                err=True,
            )
