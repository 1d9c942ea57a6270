"""Links of cells: a key leads to its story, a worker and a prefix to their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask_strata.server.pages.asking import link, run_path

#: Columns whose values lead to rows of another table: the table, and the column there.
_TABLES = {
    "worker": ("workers", "worker"),
    "source": ("workers", "worker"),
    "prefix": ("tasks", "prefix"),
    "process": ("processes", "process"),
    "submission": ("submissions", "submission"),
    "host": ("processes", "host"),
}

#: Columns of keys.
_KEYS = ("key", "dependency", "dependent")


def cells_of(
    name: str, columns: Sequence[str]
) -> Callable[[Sequence[Any]], list[tuple[Any, str | None]]]:
    """Return a function that returns the cells of a row, each with the address it leads to.

    Parameters
    ----------
    name : str
        Name of the run's folder.
    columns : sequence of str
        Names of the columns.
    """
    base = run_path(name)

    def cells(row: Sequence[Any]) -> list[tuple[Any, str | None]]:
        values = dict(zip(columns, row, strict=True))
        return [
            (value, _address(base, column, value, values))
            for column, value in zip(columns, row, strict=True)
        ]

    return cells


def _address(base: str, column: str, value: Any, row: Mapping[str, Any]) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    if column in _KEYS:
        kind = row.get("key_type") if column == "key" else None
        return link(f"{base}/story", key=value, **({"type": kind} if kind else {}))
    if column in _TABLES and (column != "source" or "://" in value):
        table, other = _TABLES[column]
        return link(f"{base}/tables/{table}", f=f"{other}:eq:{value}")
    return None
