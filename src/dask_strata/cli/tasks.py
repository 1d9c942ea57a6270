"""``dask-strata tasks``: tasks, one row each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dask_strata.analysis.tasks import (
    BRIEF,
    BRIEF_ERRED,
    GROUPS,
    IMPORTANT,
    STATES,
    group_tasks,
    select_tasks,
    state_named,
)
from dask_strata.cli.completion import (
    complete_columns,
    complete_prefix,
    complete_worker,
)
from dask_strata.cli.run_names import run_argument
from dask_strata.cli.table_options import table_options
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.report.terminal.columns import TableView
from dask_strata.report.words import count
from dask_strata.run import open_run
from dask_strata.schema import TABLES
from dask_strata.store.arrow import arrow_schema


def _complete_state(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [state for state in STATES if state.startswith(incomplete)]


@click.command("tasks")
@run_argument
@click.option("--prefix", help="Only tasks of this prefix.", shell_complete=complete_prefix)
@click.option("--span", help="Only tasks of this span and of the spans within it: a / b.")
@click.option(
    "--worker",
    help="Only tasks whose last attempt was on this worker (address or name).",
    shell_complete=complete_worker,
)
@click.option(
    "--client", help="Only tasks of this client: its id, the start of its id, or its script."
)
@click.option(
    "--state",
    shell_complete=_complete_state,
    help="Only tasks in this state: memory, erred, released, …",
)
@click.option(
    "--by", type=click.Choice(GROUPS), help="One row for each of these, with sums over its tasks."
)
@click.option(
    "--sort",
    metavar="COL",
    help="Sort by this column, largest first; -COL for smallest first.",
    shell_complete=complete_columns("tasks"),
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show; 0 for all.  [default: 50 in a table, else 0]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@table_options("tasks")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    prefix: str | None,
    span: str | None,
    worker: str | None,
    client: str | None,
    state: str | None,
    by: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    output: Path | None,
    view: TableView,
) -> None:
    """Show tasks, one row each, or sums over groups of them.

    \b
    Examples:
      dask-strata tasks RUN --sort compute_seconds --limit 10
      dask-strata tasks RUN --state erred --format json
      dask-strata tasks RUN --client pipeline.py
      dask-strata tasks RUN --by span
      dask-strata tasks RUN --span 'pipeline / load' --by prefix
      dask-strata tasks RUN --format parquet -o tasks.parquet
    """
    brief = form == "table" and output is None
    if limit is None:
        limit = 50 if brief else 0
    chosen: dict[str, Any] = {
        "prefix": prefix,
        "span": span,
        "worker": worker,
        "client": client,
        "state": state,
        "sort": sort,
        "limit": limit,
    }
    by_sort = () if sort is None else (sort.removeprefix("-"),)
    if by is None:
        usual = _columns(state, by_sort) if brief and not view.has_all else ()
        found = select_tasks(open_run(run), **chosen, columns=view.columns or usual)
        thing = "task"
        others = tuple(name for name in arrow_schema(TABLES["tasks"]).names if name not in usual)
        view = replace(view, important=(IMPORTANT[0], *by_sort, *IMPORTANT), others=others)
    else:
        found, thing = group_tasks(open_run(run), by, **chosen), "row"
        view = replace(view, important=(by, "tasks", "failed", *by_sort, "compute_seconds"))
    left = found.total - len(found.rows)
    note = f"{left:,} more; --limit 0 shows all" if left else count(found.total, thing)
    if found.finished_before:
        note += f"; {found.finished_before:,} finished before the recording"
    write_rows(found.rows, form, output, note, view)


def _columns(state: str | None, by_sort: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns on a terminal; the one that sorts is among them."""
    is_erred = state is not None and state_named(state) == "erred"
    columns = BRIEF_ERRED if is_erred else BRIEF
    return (*columns, *(name for name in by_sort if name not in columns))
