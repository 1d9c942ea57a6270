"""``dask-strata doctor``: whether a cluster is recorded, and the remedy otherwise."""

from __future__ import annotations

import click

from dask_strata.report.cluster.doctor import diagnosis_json, print_diagnosis
from dask_strata.report.rows import print_json
from dask_strata.report.terminal.table import console


@click.command("doctor")
@click.argument("address", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    help="Longest time to wait for a connection, in seconds.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.pass_context
def command(ctx: click.Context, address: str | None, timeout: float, form: str) -> None:
    """Show whether a cluster is recorded, by which processes, where to, and the remedy otherwise.

    ADDRESS is that of the scheduler, or its scheduler file. Without it, the answer is for a cluster
    that a script starts in this environment. For a cluster that needs a client of its own kind
    (dask-gateway, Coiled), use dask_strata.doctor(client) in Python.

    Exit status 0: every process of the cluster is recorded. 1: not, or not every one. Nothing is
    left behind on the cluster.

    \b
    Examples:
      dask-strata doctor
      dask-strata doctor tcp://10.0.0.1:8786
      dask-strata doctor scheduler.json --format json
    """
    from dask_strata.recorder.doctor.connect import diagnose_address
    from dask_strata.recorder.doctor.environment import diagnose_environment

    found = diagnose_environment() if address is None else diagnose_address(address, timeout)
    if form == "json":
        print_json(diagnosis_json(found))
    else:
        print_diagnosis(found, console())
    ctx.exit(0 if found.recorded else 1)
