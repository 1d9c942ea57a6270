"""Completion in a shell: tables, columns, and prefixes, keys and workers of the run before them.

It never fails. A run that is not finalised, which would have to be read whole, has no completion of
its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import click

from dask_strata.cli.run_names import find_run

Complete = Callable[[click.Context, click.Parameter, str], list[str]]

#: Most values that are offered.
_MOST = 50

_PREFIXES = """
    select distinct prefix as v from tasks where starts_with(prefix, ?) order by v limit ?
"""
_KEYS = "select distinct key as v from tasks where starts_with(key, ?) order by v limit ?"
_WORKERS = "select worker as v from workers where starts_with(worker, ?) order by v limit ?"


def complete_prefix(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a prefix of tasks; see click's ``shell_complete``."""
    return _values(ctx, param, _PREFIXES, incomplete)


def complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the key of a task; see click's ``shell_complete``."""
    return _values(ctx, param, _KEYS, incomplete)


def complete_worker(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the address of a worker; see click's ``shell_complete``."""
    return _values(ctx, param, _WORKERS, incomplete)


def complete_table(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a table; see click's ``shell_complete``."""
    from dask_strata.schema import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


def complete_columns(of: str | Iterable[str]) -> Complete:
    """Return a completion of column names, also of the last of a list with commas.

    Parameters
    ----------
    of : str or iterable of str
        The table that has the columns, or their names.
    """

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        from dask_strata.schema import TABLES

        before, comma, last = incomplete.rpartition(",")
        sign = "-" if last.startswith("-") else ""
        names = [column.name for column in TABLES[of].columns] if isinstance(of, str) else of
        return [
            f"{before}{comma}{sign}{name}" for name in names if name.startswith(last.lstrip("-"))
        ]

    return complete


def _values(ctx: click.Context, _: click.Parameter, query: str, incomplete: str) -> list[str]:
    with suppress(Exception):  # a message in the middle of a command line helps nobody
        from dask_strata.run import open_run

        # click leaves the arguments before an option without a value unparsed.
        run = open_run(find_run(ctx.params["run"] or ctx.args[0]))
        if run.record.tables.finalised() is not None:
            return [row["v"] for row in run.rows(query, incomplete, _MOST)]
    return []
