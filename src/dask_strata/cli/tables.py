"""``dask-strata tables``: the tables and columns that runs have."""

from __future__ import annotations

import click

from dask_strata.report.tables import schema_text


@click.command("tables")
@click.argument("table", required=False)
def command(table: str | None) -> None:
    """List the tables that every run has, or the columns of one, with their meaning.

    \b
    Examples:
      dask-strata tables
      dask-strata tables attempts
    """
    click.echo(schema_text(table))
