"""Options of commands that print a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from dask_strata.report.terminal.columns import TableView


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for tables to a command, which gets a `TableView` as ``view``."""

    @click.option("--columns", metavar="A,B", callback=_names, help="Only these columns.")
    @click.option("--wide", is_flag=True, help="All columns, unshortened, on any terminal.")
    @click.option("--raw", is_flag=True, help="Exact numbers, in seconds and bytes.")
    @wraps(command)
    def with_view(
        *args: Any, columns: tuple[str, ...], wide: bool, raw: bool, **options: Any
    ) -> Any:
        return command(*args, view=TableView(raw=raw, wide=wide, columns=columns), **options)

    return with_view
