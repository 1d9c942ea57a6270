"""``dask-strata report``: the page of a run."""

from __future__ import annotations

from pathlib import Path

import click

from dask_strata.cli.run_names import run_argument
from dask_strata.report.page.page import write_page
from dask_strata.report.words import size, visible
from dask_strata.run import open_run


@click.command("report")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="File to write.  [default: name of the run's folder with .html, in the current folder]",
)
def command(run: str, output: Path | None) -> None:
    """Write the page of a run: one HTML file that shows all attempts and needs no network.

    \b
    Example:
      dask-strata report runs/2026-11-21T12-00-00-pipeline-0a1b2c3d -o pipeline.html
    """
    opened = open_run(run)
    target = output or Path(f"{opened.path.resolve().name}.html")
    nbytes = write_page(opened, target)
    click.echo(f"{visible(str(target))}  {size(nbytes)}; open it in a browser", err=True)
