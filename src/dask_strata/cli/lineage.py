"""``dask-strata lineage``: origin and use of a task's result or of a file."""

from __future__ import annotations

import click

from dask_strata.analysis.lineage import trace
from dask_strata.cli.completion import complete_key
from dask_strata.cli.run_names import run_argument
from dask_strata.report.lineage import print_trace, trace_json
from dask_strata.report.rows import print_json
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run

#: Most rows of each list on a terminal.
_ROWS = 20


@click.command("lineage")
@run_argument
@click.argument("subject", metavar="KEY|FILE", shell_complete=complete_key)
@click.option(
    "--key-type", help="Type of the key (str, tuple, int, …), where two keys have the same text."
)
@click.option(
    "--depth", type=click.IntRange(min=1), help="Most steps from the task or file.  [default: all]"
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Most rows of each list; 0 for all.  [default: {_ROWS} in a table, else 0]",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def command(  # noqa: PLR0913, PLR0917
    run: str, subject: str, key_type: str | None, depth: int | None, limit: int | None, form: str
) -> None:
    """Show the origin of a task's result or of a file, and all that is made of it.

    For a task: the tasks before it, down to files and their ranges, and the tasks and files after
    it. For a file, a store or a folder: the tasks that read and wrote it, with their workers and
    hosts, and all that follows from it. A file is claimed if the task's definition names it, and
    opened if the task opened it.

    \b
    Examples:
      dask-strata lineage RUN "('sum-aggregate-0f3c', 0)"
      dask-strata lineage RUN data/part.0.parquet
      dask-strata lineage RUN data/ --depth 1 --format json
    """
    limit = (_ROWS if form == "table" else 0) if limit is None else limit
    found = trace(open_run(run), subject, key_type=key_type, depth=depth, limit=limit)
    if form == "json":
        print_json(trace_json(found))
    else:
        print_trace(found, console())
