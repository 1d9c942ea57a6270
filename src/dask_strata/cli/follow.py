"""``dask-strata follow``: the rows of a run in their order, while it is recorded or later."""

from __future__ import annotations

import sys

import click

from dask_strata.cli.run_names import run_argument
from dask_strata.errors import UsageError
from dask_strata.run import open_run
from dask_strata.stream.follow import follow
from dask_strata.stream.lines import json_lines, table_lines


def _positions(texts: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in texts:
        process, colon, seq = text.rpartition(":")
        if not colon or not process or not (seq.isascii() and seq.isdigit()):
            raise UsageError(
                f"{text!a} is not a position.", hint="Example: --from scheduler-0a1b2c3d:1200"
            )
        found[process] = int(seq)
    return found


@click.command("follow")
@run_argument
@click.option("--table", "tables", multiple=True, help="Only this table.  [default: recorded ones]")
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="PROCESS:SEQ",
    help="Only rows of this process from a number on.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "table"]),
    default="jsonl",
    show_default=True,
)
@click.option("--no-wait", is_flag=True, help="End after the rows that are on record.")
def command(
    run: str,
    tables: tuple[str, ...],
    start: tuple[str, ...],
    form: str,
    no_wait: bool,  # noqa: FBT001
) -> None:
    """Print the rows of a run, and those that are recorded meanwhile, in order by process.

    A row of a derived table, such as attempts or tasks, is printed once, when it is final. The
    command ends when the recording has ended.

    \b
    Examples:
      dask-strata follow RUN --table attempts
      dask-strata follow RUN --table log_records --table worker_events --format table
      dask-strata follow RUN --from scheduler-0a1b2c3d:1200 --no-wait
    """
    opened = open_run(run)
    batches = follow(opened, tables or None, _positions(start), wait=not no_wait)
    lines = json_lines if form == "jsonl" else table_lines
    for batch in batches:
        for line in lines(opened.manifest.run_id, batch):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
