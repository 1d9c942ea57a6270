"""Options of commands that print a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from dask_strata.cli.completion import complete_columns
from dask_strata.report.terminal.columns import TableView

_Command = Callable[..., Any]


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = (name.strip() for name in (value or "").split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def table_options(completed: str | Sequence[str] = ()) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options for tables, which a command gets as its ``view``.

    Parameters
    ----------
    completed : str or sequence of str, optional
        The table whose columns are offered for completion, or their names.
    """
    complete = complete_columns(completed)

    def add(command: _Command) -> _Command:
        @click.option("--raw", is_flag=True, help="Exact numbers, in seconds and bytes.")
        @click.option("--wide", is_flag=True, help="All columns, unshortened, on any terminal.")
        @click.option(
            "--columns",
            metavar="A,B",
            callback=_names,
            help="Only these columns.",
            shell_complete=complete,
        )
        @wraps(command)
        def with_view(
            *args: Any, columns: tuple[str, ...], wide: bool, raw: bool, **options: Any
        ) -> Any:
            return command(*args, view=TableView(raw=raw, wide=wide, columns=columns), **options)

        return with_view

    return add
