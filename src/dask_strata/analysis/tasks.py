"""Selections of tasks: by prefix, worker and state, in an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import UsageError, suggestion
from dask_strata.run.clients import find_client
from dask_strata.run.derived import definitions
from dask_strata.run.table_view import as_type
from dask_strata.schema import TABLES
from dask_strata.store.arrow import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_strata.run import Run

#: Columns of the table on a terminal; the other formats have all columns. Where there is no space
#: for all, the first ones of `IMPORTANT` are kept.
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

#: The most important columns first.
IMPORTANT = ("key", "exception", "compute_seconds", "state", "worker", "nbytes", "n_attempts")

#: Dask's states of a task, and other words for them that screens have.
STATES = (
    "released",
    "waiting",
    "no-worker",
    "queued",
    "processing",
    "memory",
    "erred",
    "forgotten",
)
_ALSO = {"failed": "erred", "error": "erred", "no worker": "no-worker"}

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
    span: str | None = None,
    worker: str | None = None,
    client: str | None = None,
    state: str | None = None,
    sort: str | None = None,
    limit: int = 0,
    columns: Sequence[str] = (),
) -> Selection:
    """Return selected rows of the table ``tasks``.

    Parameters
    ----------
    run : Run
        The run.
    prefix, worker, state : str, optional
        Select tasks with this prefix, on this worker (address or name), in this state.
    span : str, optional
        Select tasks of the spans of this name, and of the spans within them.
    client : str, optional
        Select tasks that this client submitted or requested: its id, the start of its id, or the
        name of its script.
    sort : str, optional
        Column to sort by, largest first; smallest first if the name begins with ``-``.
    limit : int, optional
        Most rows to return; 0 for all.
    columns : sequence of str, optional
        Columns to return; all by default.

    Returns
    -------
    Selection

    Raises
    ------
    UsageError
        There is no such column, prefix, span, worker, client or state.
    """
    schema = arrow_schema(TABLES["tasks"])
    selected, values = _selected(run, prefix, span, worker, client, state)
    counts = f"select count(*) as n, count(*) filter (finished_before) as before {selected}"
    [found] = run.rows(counts, *values)
    columns = columns or schema.names
    for name in columns:
        if name not in schema.names:
            raise _no_column(name, schema.names)
    query = f"select {', '.join(map(_quoted, columns))} {selected} order by {_order(sort, schema)}"
    if limit:
        query += f" limit {int(limit)}"
    rows = run.arrow(query, *values)
    table = pa.table(
        [as_type(rows[name], schema.field(name).type) for name in columns],
        schema=pa.schema([schema.field(name) for name in columns]),
    )
    return Selection(table, found["n"], found["before"])


#: Columns by which tasks can be grouped, with the noun for one value.
GROUPS = ("prefix", "group", "function", "span", "worker", "client", "state")

#: Columns of a row for each group.
_SUMS = """
    count(*) as tasks,
    case when count(state) > 0 then count(*) filter (state = 'erred') end as failed,
    sum(n_attempts)::bigint as attempts, sum(wait_seconds) as wait_seconds,
    sum(transfer_seconds) as transfer_seconds, sum(compute_seconds) as compute_seconds,
    sum(cpu_seconds) as cpu_seconds, sum(nbytes)::bigint as nbytes,
    (epoch_ns(max(finished)) - epoch_ns(min(started))) / 1e9 as wall_seconds
"""


def group_tasks(  # noqa: PLR0913
    run: Run,
    by: str,
    *,
    prefix: str | None = None,
    span: str | None = None,
    worker: str | None = None,
    client: str | None = None,
    state: str | None = None,
    sort: str | None = None,
    limit: int = 0,
) -> Selection:
    """Return sums over selected tasks, one row for each value of a column.

    Parameters
    ----------
    run : Run
        The run.
    by : str
        The column, one of `GROUPS`.
    prefix, span, worker, client, state, sort, limit
        As in `select_tasks`; ``sort`` is a column of the sums.

    Returns
    -------
    Selection
        Of a column, the sum over the tasks of which it is known. ``wall_seconds`` is the time from
        the start of the first task to the end of the last one.

    Raises
    ------
    UsageError
        There is no such column, prefix, span, worker, client or state.
    """
    selected, values = _selected(run, prefix, span, worker, client, state)
    table = run.arrow(
        f'select "{by}", {_SUMS} {selected} group by all '
        f'order by compute_seconds desc nulls last, "{by}"',
        *values,
    )
    if sort:
        table = ordered(table, sort)
    return Selection(table.slice(0, limit) if limit else table, len(table))


def _selected(  # noqa: PLR0913, PLR0917
    run: Run,
    prefix: str | None,
    span: str | None,
    worker: str | None,
    client: str | None,
    state: str | None,
) -> tuple[str, list[str]]:
    """Return the source of selected tasks as SQL, and its values."""
    where: list[str] = ["true"]
    values: list[str] = []
    if client is not None:
        where.append("list_contains(string_split(clients, ', '), ?)")
        values.append(find_client(run, client))
    if worker is not None:
        worker = _address(run, worker)
    state = None if state is None else state_named(state)
    for column, wanted in (("prefix", prefix), ("worker", worker), ("state", state)):
        if wanted is not None:
            if column != "state":
                _require(run, column, wanted, where, values)
            where.append(f"{column} = ?")
            values.append(wanted)
    if span is not None:
        query = "select distinct name from spans where name is not null order by name"
        names = [row["name"] for row in run.rows(query)]
        if span not in names:
            raise _unknown("span", span, "task", names)
        where.append("(span = ? or starts_with(span, ?))")
        values += [span, f"{span} / "]
    return f"from tasks where {' and '.join(where)}", values


def state_named(name: str) -> str:
    """Return Dask's state of a name, in any case.

    Raises
    ------
    UsageError
        There is no such state.

    >>> state_named("Memory"), state_named("failed")
    ('memory', 'erred')
    """
    wanted = name.lower()
    wanted = _ALSO.get(wanted, wanted)
    if wanted not in STATES:
        raise UsageError(
            f"No state {name}.", hint=f"{suggestion(wanted, STATES)}There are: {', '.join(STATES)}"
        )
    return wanted


def _quoted(column: str) -> str:
    return f'"{column}"'


def _require(run: Run, column: str, wanted: str, where: list[str], values: list[str]) -> None:
    """Raise UsageError unless one of the tasks selected so far has a text in a column."""
    selected = f"from tasks where {' and '.join(where)}"
    if run.rows(f"select 1 as n {selected} and {column} = ? limit 1", *values, wanted):
        return
    known = run.rows(f"select distinct {column} as v {selected} order by v", *values)
    if known:
        raise _unknown(column, wanted, "task", [row["v"] for row in known if row["v"] is not None])


def _order(sort: str | None, schema: pa.Schema) -> str:
    """Return the order of the rows, as SQL."""
    order = definitions()["tasks"].order or ""
    if not sort:
        return order
    column, direction = (sort[1:], "asc") if sort.startswith("-") else (sort, "desc")
    if column not in schema.names:
        raise _no_column(column, schema.names)
    return f"{_quoted(column)} {direction} nulls last, {order}"


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
        raise _unknown(column, wanted, thing, known)
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
        raise _no_column(column, table.column_names)
    values = table[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    return table.take(pc.sort_indices(values, sort_keys=[("", order)]))


def _unknown(column: str, wanted: str, thing: str, known: list[str]) -> UsageError:
    some = ", ".join(known[:_HINTS]) + (", …" if len(known) > _HINTS else "")
    similar = suggestion(wanted, known)
    return UsageError(
        f"No {thing} has the {column} {wanted}.", hint=f"{similar}There are: {some or 'none'}"
    )


def _no_column(column: str, columns: list[str]) -> UsageError:
    return UsageError(
        f"No column {column}.", hint=f"{suggestion(column, columns)}There are: {', '.join(columns)}"
    )
