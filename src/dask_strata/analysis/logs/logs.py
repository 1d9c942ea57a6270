"""Entries of logs: by worker, task, level and pattern."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from dask_strata.config import LEVELS
from dask_strata.errors import UsageError
from dask_strata.run.table_view import as_type, microseconds
from dask_strata.schema import TABLES
from dask_strata.store.arrow import arrow_schema

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Values of ``losses.what`` for entries beyond the bound.
_LOST = ("log_records", "output_lines")

#: Most digits of a level.
_DIGITS = 9

#: Most workers that an error message lists.
_HINTS = 10


@dataclass(frozen=True)
class Entries:
    """Selected entries, in the order of time.

    Attributes
    ----------
    rows : pa.Table
        Rows of the table ``logs``.
    total : int
        Number of all entries of the run.
    lost : tuple of (str, int or None, str)
        What is missing: its table, the number of entries (None if unknown), and why.
    left_out : bool
        Whether logs were left out of the record.
    """

    rows: pa.Table
    total: int
    lost: tuple[tuple[str, int | None, str], ...]
    left_out: bool = False


@dataclass(frozen=True)
class Wanted:
    """Conditions on entries, as SQL with its values."""

    condition: str
    values: tuple[Any, ...]


def wanted(  # noqa: PLR0913
    run: Run,
    *,
    worker: str | None = None,
    key: str | None = None,
    key_type: str | None = None,
    level: str | None = None,
    grep: str | None = None,
) -> Wanted:
    """Return conditions on entries.

    Parameters
    ----------
    run : Run
        The run.
    worker : str, optional
        Only entries of this worker: its address or name, the id of a process, or the role of
        processes (scheduler, worker, nanny, client).
    key, key_type : str, optional
        Only entries of this task.
    level : str, optional
        Only records and warnings of at least this level: its name or number.
    grep : str, optional
        Only entries that match this regular expression (in the syntax of RE2).

    Raises
    ------
    UsageError
        There is no such worker or level, or the pattern is invalid.
    UnknownTaskError
        There is no such task.
    """
    parts: list[str] = []
    values: list[Any] = []
    if worker is not None:
        parts.append("? in (worker, name, process, role)")
        values.append(_known_worker(run, worker))
    if key is not None:
        task = run.task(key, key_type)
        parts.append("key = ? and key_type = ?")
        values += [task.key, task.key_type]
    if level is not None:
        parts.append("level_number >= ?")
        values.append(level_number(level))
    if grep is not None:
        parts.append("(regexp_matches(message, ?) or regexp_matches(coalesce(exception, ''), ?))")
        values += [_valid_pattern(grep)] * 2
    return Wanted(" and ".join(parts) or "true", tuple(values))


def select_logs(run: Run, **selection: str | None) -> Entries:
    """Return selected entries of a run's logs.

    Parameters
    ----------
    run : Run
        The run.
    **selection
        Conditions on the entries, see `wanted`, which also has the errors.
    """
    return entries_of(run, wanted(run, **selection))


def entries_of(
    run: Run,
    conditions: Wanted,
    after: datetime | None = None,
    until: datetime | None = None,
    *,
    attempts: bool = True,
) -> Entries:
    """Return the entries that meet conditions, between two times if these are given.

    Parameters
    ----------
    run : Run
        The run.
    conditions : Wanted
        The conditions.
    after, until : datetime, optional
        Times in UTC.
    attempts : bool, optional
        Whether to compute the column ``attempt``, for which all attempts are computed.
    """
    schema = arrow_schema(TABLES["logs"])
    names = [name for name in schema.names if attempts or name != "attempt"]
    columns = ", ".join(f'"{name}"' for name in names)
    table = "logs" if attempts else "_log_entries"
    condition, values = conditions.condition, list(conditions.values)
    for time, comparison in ((after, ">"), (until, "<=")):
        if time is not None:
            condition += f" and time {comparison} ?"
            values.append(time)
    query = f"select {columns} from {table} where {condition} order by number"  # noqa: S608  no value
    found = run.arrow(query, *values)
    fields = [schema.field(name) for name in names]
    rows = pa.table([as_type(found[f.name], f.type) for f in fields], schema=pa.schema(fields))
    [counted] = run.rows(f"select count(*) as n from {table}")  # noqa: S608  as above
    return Entries(rows, counted["n"], lost_entries(run), is_left_out(run))


def lost_entries(run: Run) -> tuple[tuple[str, int | None, str], ...]:
    """Return what is missing of the logs: its table, the number of entries, and why."""
    found = run.rows(
        "select what, sum(count)::bigint as n, reason from losses where what in (?, ?) "
        "group by what, reason order by what, reason",
        *_LOST,
    )
    return tuple((row["what"], row["n"], row["reason"]) for row in found)


def is_left_out(run: Run) -> bool:
    """Return whether the setting ``leave-out`` excludes logs."""
    found = run.rows(
        "select 1 as n from job where name = 'dask-strata.left-out' "
        "and list_contains(string_split(value, ', '), 'logs') limit 1"
    )
    return bool(found)


def level_number(level: str) -> int:
    """Return the number of a level, given by its name or number.

    Raises
    ------
    UsageError
        There is no such level.

    >>> level_number("warning"), level_number("35")
    (30, 35)
    """
    is_number = level.isdecimal() and len(level) <= _DIGITS
    number = LEVELS.get(level.upper(), int(level) if is_number else None)
    if number is None:
        raise UsageError(f"No level {level}.", hint=f"Levels: {', '.join(LEVELS)}, or a number.")
    return number


def _known_worker(run: Run, worker: str) -> str:
    query = "select 1 as n from processes where ? in (process, address, name, role) limit 1"
    if not run.rows(query, worker):
        rows = run.rows("select name, address from processes where role = 'worker' order by start")
        known = list(dict.fromkeys(row["name"] or row["address"] for row in rows))
        some = ", ".join(known[:_HINTS]) + (", …" if len(known) > _HINTS else "")
        raise UsageError(
            f"No worker or process {worker}.", hint=f"Workers of this run: {some or 'none'}."
        )
    return worker


def _valid_pattern(pattern: str) -> str:
    try:
        duckdb.execute("select regexp_matches('', ?)", [pattern])
    except (duckdb.Error, UnicodeError) as error:
        reason = str(error).strip().splitlines()[0].removeprefix("Invalid Input Error: ")
        raise UsageError(f"{pattern} is no regular expression: {reason}.") from None
    return pattern


@dataclass(frozen=True)
class Problems:
    """Records and warnings of at least the level WARNING.

    Attributes
    ----------
    last : tuple of dict
        The last of them, rows of the table ``logs``.
    total : int
        Number of all of them.
    """

    last: tuple[dict[str, Any], ...]
    total: int


def problems(run: Run, most: int) -> Problems:
    """Return the last records and warnings of a run that are at least WARNING.

    Parameters
    ----------
    run : Run
        The run.
    most : int
        Most rows to return.
    """
    wanted_level = Wanted("level_number >= ?", (LEVELS["WARNING"],))
    rows = microseconds(entries_of(run, wanted_level, attempts=False).rows)
    last = rows.slice(max(len(rows) - most, 0)).to_pylist()
    return Problems(tuple(last), len(rows))
