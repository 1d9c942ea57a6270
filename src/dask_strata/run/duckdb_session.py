"""DuckDB connections that read only the tables registered with them.

DuckDB checks for signals only between its own tasks, raises a plain RuntimeError then, and turns a
KeyboardInterrupt in a callback into an error of its own. A long task would delay Ctrl-C until its
end. Queries of the main thread therefore run in another thread, and the main thread, which receives
the signal, interrupts them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dask_strata.errors import InterruptedQueryError, QueryError, StrataError

_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.RELATION}

_HINT = "Tables: dask-strata tables. Columns: dask-strata tables TABLE."
_GROUP = ' "group" needs quotes, as it is also a word of SQL.'

_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\b", re.IGNORECASE)

#: Seconds between two requests to DuckDB to interrupt a query that has not ended yet.
_INTERRUPT_INTERVAL = 0.1

_T = TypeVar("_T")


def connect(
    memory_limit: str | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection without access to files, network or extensions.

    Parameters
    ----------
    memory_limit : str, optional
        Memory limit in DuckDB's notation, such as ``"1GiB"``; 80 % of the memory by default.
    spill : Path, optional
        Folder for data that exceeds the limit; by default nothing is written.

    Examples
    --------
    >>> connect().execute("select 6 * 7").fetchall()
    [(42,)]
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "" if spill is None else str(spill),
        },
    )
    connection.execute("set timezone = 'UTC'")
    # DuckDB prints its progress bar to standard output, which contains answers.
    connection.execute("set enable_progress_bar = false")
    if memory_limit is not None:
        connection.execute("set memory_limit = ?", [memory_limit])
    return connection


def interruptible(connection: duckdb.DuckDBPyConnection, action: Callable[[], _T]) -> _T:
    """Return the result of an action that runs a query; Ctrl-C ends the query.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection that the action uses.
    action : callable
        Runs the query; in a thread of its own if this is the main thread.

    Raises
    ------
    InterruptedQueryError
        The query was interrupted by ``connection.interrupt()`` or by Ctrl-C.
    """
    try:
        if threading.current_thread() is threading.main_thread():
            return _in_thread(connection, action)
        return action()
    except (duckdb.InterruptException, KeyboardInterrupt) as error:
        raise InterruptedQueryError("SQL: the query was interrupted.") from error


def _in_thread(connection: duckdb.DuckDBPyConnection, action: Callable[[], _T]) -> _T:
    """Run an action in a new thread; interrupt its query if a signal raises an exception here."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001  it is raised again in the main thread
            errors.append(error)
        finally:
            ended.set()

    # Not `Thread.join`: before Python 3.13, a signal makes it return as if the thread had ended.
    ended = threading.Event()
    threading.Thread(target=run, name="dask-strata-query", daemon=True).start()
    try:
        ended.wait()
    except BaseException:
        # DuckDB ignores an interruption before the query has started: repeat it.
        while not ended.is_set():
            connection.interrupt()
            ended.wait(_INTERRUPT_INTERVAL)
        raise
    if errors:
        raise errors[0]
    return results[0]


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
    """Turn DuckDB's errors about values into a StrataError, such as a sum that overflows."""
    try:
        yield
    except (
        duckdb.OutOfRangeException,
        duckdb.ConversionException,
        duckdb.InvalidInputException,
    ) as error:
        raise StrataError(
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
        raise QueryError(f"SQL: {_first_line(error)}", hint=_hint(query)) from None


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
