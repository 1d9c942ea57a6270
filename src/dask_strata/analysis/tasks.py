"""Selections of tasks: by prefix, worker and state, in an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import UsageError
from dask_strata.run.clients import find_client

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Columns of the table on a terminal; the other formats have all columns.
BRIEF = (
    "key",
    "state",
    "worker",
    "n_attempts",
    "wait_seconds",
    "transfer_seconds",
    "compute_seconds",
    "cpu_seconds",
    "other_cpu_seconds",
    "nbytes",
    "typename",
)

#: The same for tasks that failed.
BRIEF_ERRED = (
    "key",
    "state",
    "worker",
    "n_attempts",
    "compute_seconds",
    "worker_ends",
    "exception",
)


#: Most values that an error message lists.
_HINTS = 10


@dataclass(frozen=True)
class Selection:
    """Selected rows, and their number without the limit.

    Attributes
    ----------
    rows : pa.Table
        The rows.
    total : int
        Their number without the limit.
    finished_before : int
        How many of these finished before the recording.
    """

    rows: pa.Table
    total: int
    finished_before: int = 0


def select_tasks(  # noqa: PLR0913
    run: Run,
    *,
    prefix: str | None = None,
    worker: str | None = None,
    client: str | None = None,
    state: str | None = None,
    sort: str | None = None,
    limit: int = 0,
    brief: bool = False,
) -> Selection:
    """Return selected rows of the table ``tasks``.

    Parameters
    ----------
    run : Run
        The run.
    prefix, worker, state : str, optional
        Select tasks with this prefix, on this worker (address or name), in this state.
    client : str, optional
        Select tasks that this client submitted or requested: its id, the begin of its id, or the
        name of its script.
    sort : str, optional
        Column to sort by, largest first; smallest first if the name begins with ``-``.
    limit : int, optional
        Most rows to return; 0 for all.
    brief : bool, optional
        Return only the columns in `BRIEF`, or in `BRIEF_ERRED` if tasks that failed are selected.

    Returns
    -------
    Selection

    Raises
    ------
    UsageError
        There is no such column, prefix, worker, client or state.
    """
    table = run["tasks"].to_arrow()
    if client is not None:
        table = _of_client(table, find_client(run, client))
    if worker is not None:
        worker = _address(run, worker)
    for column, wanted in (("prefix", prefix), ("worker", worker), ("state", state)):
        if wanted is not None:
            table = only(table, column, wanted)
    total, before = len(table), pc.sum(table["finished_before"]).as_py() or 0
    if sort:
        table = ordered(table, sort)
    if limit:
        table = table.slice(0, limit)
    columns = BRIEF_ERRED if state == "erred" else BRIEF
    return Selection(table.select(list(columns)) if brief else table, total, before)


def _of_client(table: pa.Table, client: str) -> pa.Table:
    ids = pc.unique(table["clients"].cast(pa.string()))
    own = [text for text in ids.to_pylist() if text is not None and client in text.split(", ")]
    return table.filter(pc.is_in(table["clients"].cast(pa.string()), pa.array(own, pa.string())))


def _address(run: Run, worker: str) -> str:
    rows = run.rows("select worker from workers where name = ? or worker = ?", worker, worker)
    return rows[0]["worker"] if rows else worker


def only(table: pa.Table, column: str, wanted: str, thing: str = "task") -> pa.Table:
    """Return the rows of a table whose column equals a text.

    Parameters
    ----------
    table : pa.Table
        The table.
    column : str
        Name of the column.
    wanted : str
        The text.
    thing : str, optional
        Noun for a row of the table, used in the error message.

    Raises
    ------
    UsageError
        No row has the text, and the table has rows.

    >>> only(pa.table({"n": ["a", "b", "a"]}), "n", "a").num_rows
    2
    """
    texts = table[column].cast(pa.string())
    known = sorted(v for v in pc.unique(texts).to_pylist() if v is not None)
    if wanted not in known and len(table):
        some = ", ".join(known[:_HINTS]) + (", …" if len(known) > _HINTS else "")
        raise UsageError(
            f"No {thing} has the {column} {wanted}.", hint=f"There are: {some or 'none'}"
        )
    return table.filter(pc.equal(texts, wanted))


def ordered(table: pa.Table, sort: str) -> pa.Table:
    """Return a table sorted by a column.

    Parameters
    ----------
    table : pa.Table
        The table.
    sort : str
        Name of the column, for largest first; with ``-`` before it for smallest first.

    Raises
    ------
    UsageError
        There is no such column.

    >>> ordered(pa.table({"n": [2, 3, 1]}), "-n")["n"].to_pylist()
    [1, 2, 3]
    """
    column, order = (sort[1:], "ascending") if sort.startswith("-") else (sort, "descending")
    if column not in table.column_names:
        raise UsageError(f"No column {column}.", hint=f"There are: {', '.join(table.column_names)}")
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    return table.take(pc.sort_indices(values, sort_keys=[("", order)]))
