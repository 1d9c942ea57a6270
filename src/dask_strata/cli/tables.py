"""``dask-strata tables``: the tables of every run and their columns."""

from __future__ import annotations

import click

from dask_strata.report.tables import schema_text


@click.command("tables")
@click.argument("table", required=False)
def command(table: str | None) -> None:
    """List the tables of every run, or the columns of one table with their meanings.

    \b
    Examples:
      dask-strata tables
      dask-strata tables attempts
    """
    click.echo(schema_text(table))
