"""``dask-strata stream``: send the rows of a run to a broker, while it is recorded or later."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from dask_strata.cli.run_names import run_argument
from dask_strata.errors import UsageError
from dask_strata.report.words import count, visible
from dask_strata.run import open_run
from dask_strata.stream.recorded import damage_error
from dask_strata.stream.sender import send

#: Bytes of an address on standard input, at most.
_ADDRESS_BYTES = 16 << 10


def _address(url: str) -> str:
    if url != "-":
        return url
    found = sys.stdin.buffer.read(_ADDRESS_BYTES).decode("utf-8", "replace").strip()
    if not found:
        raise UsageError("Standard input has no address.", hint="Example: file:rows.jsonl")
    return found


def _report(text: str) -> None:
    # The scheduler that reads these lines may have ended.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{visible(text)}\n")
        sys.stderr.flush()


@click.command("stream")
@run_argument
@click.argument("url")
@click.option("--again", is_flag=True, help="Send rows that are in the stream once more.")
@click.option("--background", is_flag=True, hidden=True)
def command(run: str, url: str, again: bool, background: bool) -> None:  # noqa: FBT001
    """Send the rows of a run to a broker: Kafka, Redis, Mofka, or lines in a file.

    The command ends when the recording has ended and all rows are sent. It can be interrupted and
    repeated: it continues where the stream ends. With "-" as URL, the address is read from standard
    input, so that the list of processes does not show a password. Addresses: docs/brokers.md.

    \b
    Examples:
      dask-strata stream RUN kafka://host:9092/dask-strata
      dask-strata stream RUN redis://host:6379
      dask-strata stream RUN file:rows.jsonl
    """
    if background:
        with suppress(OSError):
            os.nice(10)  # the workers of this machine come first
    opened = open_run(run)
    sent = send(opened, _address(url), again=again, report=_report)
    if not background:
        click.echo(f"{visible(sent.url)}: {count(sent.rows, 'row')} sent, the run is {sent.state}")
    if sent.damaged:
        raise damage_error(opened.path, sent.damaged)
