"""Choosing tasks: by prefix, worker, state, in an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import UsageError

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Columns of a table for people; the rest is in the other formats.
BRIEF = (
    "key",
    "state",
    "worker",
    "n_attempts",
    "wait_seconds",
    "transfer_seconds",
    "compute_seconds",
    "nbytes",
    "typename",
)


@dataclass(frozen=True)
class Selection:
    """The rows chosen, and how many there are without the limit."""

    rows: pa.Table
    total: int


def select_tasks(  # noqa: PLR0913
    run: Run,
    *,
    prefix: str | None = None,
    worker: str | None = None,
    state: str | None = None,
    sort: str | None = None,
    limit: int = 0,
    brief: bool = False,
) -> Selection:
    """Return the rows of `tasks` that were asked for.

    Parameters
    ----------
    sort : str, optional
        Column, largest first; with ``-`` before it smallest first.
    limit : int, optional
        At most so many rows; 0 for all.
    brief : bool, optional
        Whether only the columns for people are wanted.

    Raises
    ------
    UsageError
        There is no such column, prefix, worker or state.
    """
    table = run["tasks"].to_arrow()
    if worker is not None:
        worker = _address(run, worker)
    for column, wanted in (("prefix", prefix), ("worker", worker), ("state", state)):
        if wanted is not None:
            table = only(table, column, wanted)
    total = len(table)
    if sort:
        table = ordered(table, sort)
    if limit:
        table = table.slice(0, limit)
    return Selection(table.select(list(BRIEF)) if brief else table, total)


def _address(run: Run, worker: str) -> str:
    rows = run.rows("select worker from workers where name = ? or worker = ?", worker, worker)
    return rows[0]["worker"] if rows else worker


def only(table: pa.Table, column: str, wanted: str, thing: str = "task") -> pa.Table:
    """Return the rows of a table that have a text in a column.

    Raises
    ------
    UsageError
        No row has it.
    """
    texts = table[column].cast(pa.string())
    known = sorted(v for v in pc.unique(texts).to_pylist() if v is not None)
    if wanted not in known and len(table):
        some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")  # noqa: PLR2004
        raise UsageError(
            f"No {thing} has the {column} {wanted}.", hint=f"There are: {some or 'none'}"
        )
    return table.filter(pc.equal(texts, wanted))


def ordered(table: pa.Table, sort: str) -> pa.Table:
    """Return a table in the order of a column: largest first, with ``-`` smallest first.

    Raises
    ------
    UsageError
        There is no such column.
    """
    column, order = (sort[1:], "ascending") if sort.startswith("-") else (sort, "descending")
    if column not in table.column_names:
        raise UsageError(f"No column {column}.", hint=f"There are: {', '.join(table.column_names)}")
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    return table.take(pc.sort_indices(values, sort_keys=[("", order)]))
