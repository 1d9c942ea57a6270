"""``dask-strata why``: why workers ended."""

from __future__ import annotations

import click

from dask_strata.analysis.why import why
from dask_strata.cli.run_names import run_argument
from dask_strata.report.rows import print_json
from dask_strata.report.terminal.table import console
from dask_strata.report.why import print_why, why_json
from dask_strata.run import open_run


@click.command("why")
@run_argument
@click.argument("worker", required=False)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(run: str, worker: str | None, form: str) -> None:
    """Show why workers ended: whose act it was, and what ran, was held and was lost.

    Without WORKER, unexpected ends come first, and planned ones are summed up in a line. WORKER is
    a name, an address, a process of the table `processes`, or a process id.

    \b
    Examples:
      dask-strata why RUN
      dask-strata why RUN tcp://10.0.0.5:40331
      dask-strata why RUN 12814 --format json
    """
    found = why(open_run(run), worker)
    if form == "json":
        print_json(why_json(found))
    else:
        print_why(found, console())
