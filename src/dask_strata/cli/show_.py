"""``dask-strata show``: the first screen."""

from __future__ import annotations

import click

from dask_strata.analysis.summary import summarize
from dask_strata.report.tables import console
from dask_strata.report.terminal import print_summary, summary_json
from dask_strata.run import open_run


@click.command("show")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(run: str, form: str) -> None:
    """Show what ran, how long, where the time went and what stands out.

    \b
    Example:
      dask-strata show runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    summary = summarize(open_run(run))
    if form == "json":
        click.echo(summary_json(summary))
    else:
        print_summary(summary, console())
