"""``dask-strata tasks``: tasks, one row each."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.analysis.tasks import select_tasks
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.run import open_run


@click.command("tasks")
@click.argument("run")
@click.option("--prefix", help="Only tasks of this prefix.")
@click.option(
    "--worker", help="Only tasks whose last attempt was on this worker (address or name)."
)
@click.option(
    "--client", help="Only tasks of this client: its id, the begin of its id, or its script."
)
@click.option("--state", help="Only tasks in this state: memory, erred, released, processing, …")
@click.option(
    "--sort", metavar="COL", help="Sort by this column, largest first; -COL for smallest first."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show; 0 for all.  [default: 50 in a table, else 0]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    prefix: str | None,
    worker: str | None,
    client: str | None,
    state: str | None,
    sort: str | None,
    limit: int | None,
    form: str,
    output: Path | None,
) -> None:
    """Show tasks, one row each.

    \b
    Examples:
      dask-strata tasks RUN --sort compute_seconds --limit 10
      dask-strata tasks RUN --state erred --format json
      dask-strata tasks RUN --client pipeline.py
      dask-strata tasks RUN --format parquet -o tasks.parquet
    """
    brief = form == "table" and output is None
    if limit is None:
        limit = 50 if brief else 0
    found = select_tasks(
        open_run(run),
        prefix=prefix,
        worker=worker,
        client=client,
        state=state,
        sort=sort,
        limit=limit,
        brief=brief,
    )
    left = found.total - len(found.rows)
    note = f"{left:,} more; --limit 0 shows all" if left else f"{found.total:,} tasks"
    if found.finished_before:
        note += f"; {found.finished_before:,} finished before the recording"
    write_rows(found.rows, form, output, note)
