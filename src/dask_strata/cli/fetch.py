"""``dask-strata fetch``: bring runs from a scheduler to this machine."""

from __future__ import annotations

import shlex
import time

import click

from dask_strata.cli.local import require_folder
from dask_strata.config import read_settings
from dask_strata.recorder.copying.fetch import fetch
from dask_strata.report.words import size, visible
from dask_strata.run import open_run

#: Time between two lines of progress, in seconds.
_PROGRESS_SECONDS = 2.0


@click.command("fetch")
@click.argument("target", metavar="ADDRESS|RUN_ID")
@click.option(
    "-o", "--output", "runs", metavar="RUNS", help="Folder to copy the runs to.  [default: runs]"
)
@click.option("--run", "only", metavar="RUN_ID", help="Fetch only this run of the scheduler.")
def command(target: str, runs: str | None, only: str | None) -> None:
    """Fetch the runs of a scheduler that has another file system, or the rest of one.

    ADDRESS is the address of a scheduler that is recorded: its runs are copied as far as they
    are recorded, and a repeated call adds the rest. RUN_ID is the id of a run of which RUNS
    has an incomplete copy. TLS is configured as for Dask's clients.

    \b
    Examples:
      dask-strata fetch tcp://scheduler:8786 -o runs
      dask-strata fetch 0a1b2c3d -o runs
    """
    folder = require_folder(read_settings(runs=runs).runs, "copy runs")
    last = time.monotonic()

    def progress(run: str, n_bytes: int) -> None:
        nonlocal last
        if time.monotonic() - last > _PROGRESS_SECONDS:
            last = time.monotonic()
            click.echo(f"{run}: {size(n_bytes)} so far", err=True)

    for copy in fetch(target, folder, only=only, received=progress):
        click.echo(visible(str(copy.folder)))
        if copy.was_there and open_run(copy.folder).state == "recording":
            state = "it is being recorded into this folder"
        elif copy.complete:
            state = "complete"
        else:
            again = f"dask-strata fetch {copy.run} -o {shlex.quote(str(folder))}"
            state = f"as recorded so far; for the rest: {again}"
        click.echo(f"{copy.run}: {size(copy.n_bytes)} fetched, {state}", err=True)
