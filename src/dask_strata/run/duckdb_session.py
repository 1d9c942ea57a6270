"""DuckDB connections that read only the tables registered with them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dask_strata.errors import QueryError, UncomputableError
from dask_strata.run.table_view import microseconds
from dask_strata.store.interruptible import hide_progress, interruptible

#: Type of times in SQL. Before 2.0, the last for Python 3.10, DuckDB has microseconds only.
TIME_TYPE = "timestamptz_ns" if int(duckdb.__version__.split(".")[0]) > 1 else "timestamptz"

_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.RELATION}

_HINT = "Tables: dask-strata tables. Columns: dask-strata tables TABLE."
_GROUP = ' "group" needs quotes, as it is also a word of SQL.'

_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\b", re.IGNORECASE)


#: Words of DuckDB's errors about files that it cannot read.
_OF_FILES = ("parquet", "tprotocol", "thrift", "zstd", "/dev/fd/")


class UnreadableError(QueryError):
    """DuckDB cannot read a file that a query needs."""


def register(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Register a table under a name.

    DuckDB before 2.0 passes filters on times to Arrow in microseconds, and would lose the rows
    whose times have nanoseconds: it gets them in microseconds.

    Examples
    --------
    >>> times = pa.table({"t": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))})
    >>> connection = connect()
    >>> register(connection, "times", times)
    >>> last = "select count(*) from times where t = (select max(t) from times)"
    >>> connection.execute(last).fetchall()
    [(1,)]
    """
    has_nanoseconds = TIME_TYPE != "timestamptz"
    connection.register(name, table if has_nanoseconds else microseconds(table))


def connect(
    memory_limit: str | None = None,
    spill: Path | None = None,
    *,
    files: bool | Collection[str] = False,
) -> duckdb.DuckDBPyConnection:
    """Return a connection without access to network or extensions, or to other files than stated.

    Parameters
    ----------
    memory_limit : str, optional
        Memory limit in DuckDB's notation, such as ``"1GiB"``; 80 % of the memory by default.
    spill : Path, optional
        Folder for data that exceeds the limit; by default nothing is written.
    files : bool or collection of str, optional
        Paths of files that queries can read; True for all, of trusted queries only.

    Examples
    --------
    >>> connect().execute("select 6 * 7").fetchall()
    [(42,)]
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "true" if files else "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "" if spill is None else str(spill),
        },
    )
    if files and files is not True:
        execute(connection, "set allowed_paths = ?", sorted(files))
        execute(connection, "set enable_external_access = false")
    execute(connection, "set timezone = 'UTC'")
    if TIME_TYPE == "timestamptz":
        # The filters that DuckDB 1.5 makes of a join's values are unknown to Arrow's scans.
        execute(connection, "set disabled_optimizers = 'join_filter_pushdown'")
    hide_progress(connection)
    if memory_limit is not None:
        execute(connection, "set memory_limit = ?", memory_limit)
    return connection


def execute(connection: duckdb.DuckDBPyConnection, statement: str, *parameters: Any) -> None:
    """Execute a trusted statement without an answer.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection.
    statement : str
        The statement.
    *parameters
        Values of the parameters in the statement.

    Raises
    ------
    InterruptedQueryError
        The statement was interrupted, however short it is.
    """
    interruptible(connection, lambda: connection.execute(statement, list(parameters) or None))


def fetch(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: list[Any] | None = None
) -> pa.Table:
    """Return the answer to a trusted query.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        A connection with the tables that the query names.
    query : str
        The query.
    parameters : list, optional
        Values of the parameters in the query.

    Raises
    ------
    InterruptedQueryError
        The query was interrupted.

    Examples
    --------
    >>> fetch(connect(), "select ? + 1 as n", [41]).to_pylist()
    [{'n': 42}]
    """
    return interruptible(
        connection, lambda: connection.sql(query, params=parameters).to_arrow_table()
    )


@contextmanager
def computing() -> Iterator[None]:
    """Turn DuckDB's errors about values into an UncomputableError, such as a sum that overflows."""
    try:
        yield
    except (
        duckdb.OutOfRangeException,
        duckdb.ConversionException,
        duckdb.InvalidInputException,
    ) as error:
        raise UncomputableError(
            f"Values in the record cannot be computed with: {str(error).splitlines()[0]}",
            hint="The record may be damaged: query the recorded tables with `dask-strata query`.",
        ) from error


def fetch_read_only(
    connection: duckdb.DuckDBPyConnection, query: str, limit: int | None = None
) -> pa.Table:
    """Return the answer to a user's query.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        A connection with the tables that the query names.
    query : str
        The query, in SQL.
    limit : int, optional
        Return at most the first ``limit`` rows.

    Raises
    ------
    QueryError
        The query is wrong, or does anything but read.
    InterruptedQueryError
        The query was interrupted.
    """
    try:
        query.encode()  # DuckDB's error for a text that UTF-8 cannot encode is one about types
        statements = connection.extract_statements(query)
    except (duckdb.Error, UnicodeEncodeError) as error:
        raise QueryError(f"SQL: {_first_line(error)}", hint=_hint(query)) from None
    if len(statements) != 1 or not _only_reads(connection, statements[0], query):
        raise QueryError(
            "SQL: only one query that reads is allowed (select, with, describe, explain).",
            hint="Example: select prefix, count(*) from tasks group by prefix",
        )

    def answer() -> pa.Table:
        relation = connection.sql(query)
        return (relation if limit is None else relation.limit(limit)).to_arrow_table()

    try:
        return interruptible(connection, answer)
    except (duckdb.Error, pa.ArrowException, RuntimeError) as error:
        text = str(error).lower()
        kind = UnreadableError if any(word in text for word in _OF_FILES) else QueryError
        raise kind(f"SQL: {_first_line(error)}", hint=_hint(query)) from None


def _hint(query: str) -> str:
    return _HINT + (_GROUP if re.search(r"\bgroup\b(?!\s+by)", query, re.IGNORECASE) else "")


def _only_reads(connection: duckdb.DuckDBPyConnection, statement: Any, query: str) -> bool:
    if statement.type in _READS:
        return True
    explained = _EXPLAIN.match(query)
    if statement.type != duckdb.StatementType.EXPLAIN or explained is None:
        return False
    try:  # `explain analyze` executes the statement behind it
        inner = connection.extract_statements(query[explained.end() :])
    except duckdb.Error:
        return False
    return len(inner) == 1 and inner[0].type in _READS


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:400] if lines else type(error).__name__
