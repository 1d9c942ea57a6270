"""``dask-strata profile``: time in functions and coroutines, by owner of the code."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.analysis.profile import KINDS, select_profile
from dask_strata.report.rows import FORMATS, write_rows
from dask_strata.run import open_run


@click.command("profile")
@click.argument("run")
@click.option(
    "--by",
    type=click.Choice(list(KINDS)),
    default="function",
    show_default=True,
    help="Kind of rows.",
)
@click.option("--process", help="Only of this process: its id, address or name in Dask.")
@click.option("--waiting", is_flag=True, help="Include functions whose own time is waiting.")
@click.option(
    "--sort", metavar="COL", help="Sort by this column, largest first; -COL for smallest first."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show; 0 for all.  [default: 30 in a table, else 0]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    by: str,
    process: str | None,
    waiting: bool,  # noqa: FBT001
    sort: str | None,
    limit: int | None,
    form: str,
    output: Path | None,
) -> None:
    """Show a profile: time in functions and coroutines, and the owners of their code.

    Profiles are recorded only with dask-strata record --yappi wall, or cpu. The time of compiled
    code counts for the Python function that called it. The folder profiles of the run has files
    for other tools.

    \b
    Examples:
      dask-strata profile RUN
      dask-strata profile RUN --by owner --format csv
      dask-strata profile RUN --process tcp://10.0.0.1:4711 --sort total_seconds
    """
    if limit is None:
        limit = 30 if form == "table" and output is None else 0
    found = select_profile(
        open_run(run), by=by, process=process, waiting=waiting, sort=sort, limit=limit
    )
    left = found.total - len(found.rows)
    note = f"{left:,} more; --limit 0 shows all" if left else f"{found.total:,} rows"
    write_rows(found.rows, form, output, note)
