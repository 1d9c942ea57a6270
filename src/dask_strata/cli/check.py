"""``dask-strata check``: completeness of the record."""

from __future__ import annotations

import click

from dask_strata.analysis.check import check
from dask_strata.report.check import check_json, print_check
from dask_strata.report.rows import console, print_json
from dask_strata.run import open_run


@click.command("check")
@click.argument("run")
@click.option("-v", "--verbose", is_flag=True, help="Also list complete parts.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.pass_context
def command(ctx: click.Context, run: str, verbose: bool, form: str) -> None:  # noqa: FBT001
    """Compare the record with Dask's own counters, and list missing parts.

    Exit status 0: the record is complete. 1: something is missing.

    \b
    Example:
      dask-strata check runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    found = check(open_run(run))
    if form == "json":
        print_json(check_json(found))
    else:
        print_check(found, console(), verbose=verbose)
    ctx.exit(0 if found.ok else 1)
