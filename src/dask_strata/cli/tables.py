"""``dask-strata tables``: the tables of every run and their columns."""

from __future__ import annotations

import click

from dask_strata.cli.completion import complete_table
from dask_strata.report.tables import schema_text


@click.command("tables")
@click.argument("table", required=False, shell_complete=complete_table)
def command(table: str | None) -> None:
    """List the tables of every run, or the columns of one table with their meanings.

    \b
    Examples:
      dask-strata tables
      dask-strata tables attempts
    """
    click.echo(schema_text(table))
