"""``dask-strata logs``: what processes logged and printed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from dask_strata.analysis.logs import entries_of, wanted
from dask_strata.cli.completion import complete_key
from dask_strata.cli.run_names import run_argument
from dask_strata.errors import StrataError, UsageError
from dask_strata.report.logs.follow import follow as follow_logs
from dask_strata.report.logs.lines import entry_lines, note_of
from dask_strata.report.rows import write_rows
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("logs")
@run_argument
@click.option(
    "--worker",
    help="Only of this worker: its name or address, the id of a process, or a role as scheduler.",
)
@click.option("--key", shell_complete=complete_key, help="Only of this task.")
@click.option(
    "--key-type", help="Type of the key (str, tuple, int, …), where two keys have the same text."
)
@click.option("--level", help="Only records and warnings of at least this level, as WARNING.")
@click.option("--grep", metavar="PATTERN", help="Only entries that match a regular expression.")
@click.option("--follow", is_flag=True, help="Print new entries until the recording ends.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json", "parquet"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def command(  # noqa: PLR0913, PLR0917
    run: str,
    worker: str | None,
    key: str | None,
    key_type: str | None,
    level: str | None,
    grep: str | None,
    follow: bool,  # noqa: FBT001
    form: str,
    output: Path | None,
) -> None:
    """Show what schedulers, workers, nannies and clients logged, and what workers printed.

    A line that a worker printed of a log record is shown once, as the record.

    \b
    Examples:
      dask-strata logs RUN --level WARNING
      dask-strata logs RUN --worker 3 --grep 'timed? out'
      dask-strata logs RUN --key "('sum-aggregate-0f3c', 0)"
      dask-strata logs RUN --follow
      dask-strata logs RUN --format parquet -o logs.parquet
    """
    if follow and (form != "text" or output is not None):
        raise UsageError("--follow prints text.", hint="Omit --follow, or --format and -o.")
    opened = open_run(run)
    conditions = wanted(opened, worker=worker, key=key, key_type=key_type, level=level, grep=grep)
    if follow:
        for line in follow_logs(opened, conditions):
            click.echo(line)
        return
    entries = entries_of(opened, conditions)
    if form != "text":
        write_rows(entries.rows, form, output)
    elif output is None:
        for line in entry_lines(entries):
            click.echo(line)
        console().print(note_of(entries), style="dim", soft_wrap=True)
    else:
        _write(output, entry_lines(entries))


def _write(output: Path, lines: Iterable[str]) -> None:
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise StrataError(f"{output} cannot be written: {error.strerror or error}.") from None
