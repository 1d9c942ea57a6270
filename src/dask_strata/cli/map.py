"""``dask-strata map``: the metadata map with its row counts."""

from __future__ import annotations

import click

from dask_strata.analysis.map import metadata_map
from dask_strata.cli.run_names import run_argument
from dask_strata.report.map import map_json, print_map
from dask_strata.report.rows import print_json
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("map")
@run_argument
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def command(run: str, form: str) -> None:
    """Show the metadata map: number of rows by step and layer, and their tables.

    \b
    Example:
      dask-strata map runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    cells = metadata_map(open_run(run))
    if form == "json":
        print_json(map_json(cells))
    else:
        print_map(cells, console())
