"""``dask-strata check``: completeness of the record."""

from __future__ import annotations

import click

from dask_strata.analysis.check import WHOLE, check
from dask_strata.cli.run_names import run_argument
from dask_strata.report.check import check_json, print_check
from dask_strata.report.rows import print_json
from dask_strata.report.terminal.table import console
from dask_strata.run import open_run


@click.command("check")
@run_argument
@click.option("-v", "--verbose", is_flag=True, help="Also list complete parts.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1, too, if a process was cut off without a loss of tasks.",
)
@click.pass_context
def command(ctx: click.Context, run: str, verbose: bool, form: str, strict: bool) -> None:  # noqa: FBT001
    """Compare the record with Dask's own counters, and list missing parts.

    The record has one of three grades. "whole": nothing is missing. "whole for every task": a
    process was cut off (CUT), but each attempt that the scheduler knows is complete; the last
    samples of the process may be missing. "missing": parts are missing, or it cannot be proved that
    none are.

    Exit status 0: whole, or whole for every task. 1: something is missing; with --strict, also if
    the record is only whole for every task.

    \b
    Examples:
      dask-strata check runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
      dask-strata check --strict runs/2026-11-21T12-00-00-pipeline-0a1b2c3d
    """
    found = check(open_run(run))
    if form == "json":
        print_json(check_json(found))
    else:
        print_check(found, console(), verbose=verbose)
    ctx.exit(0 if found.grade == WHOLE or (found.ok and not strict) else 1)
