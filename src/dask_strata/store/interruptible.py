"""Queries of DuckDB that Ctrl-C ends, and that show no progress bar.

DuckDB checks for signals only between its own tasks, raises a plain RuntimeError then, and turns a
KeyboardInterrupt in a callback into an error of its own. A long task would delay Ctrl-C until its
end. Queries of the main thread therefore run in another thread, and the main thread, which receives
the signal, interrupts them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

from dask_strata.errors import InterruptedQueryError

#: Seconds between two requests to DuckDB to interrupt a query that has not ended yet.
_INTERRUPT_INTERVAL = 0.1

_T = TypeVar("_T")


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


def hide_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch off the progress bar of a connection: standard output contains answers.

    In a notebook without ipywidgets the bar is off, and DuckDB refuses any change of the setting.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The connection.
    """

    def hide() -> None:
        setting = connection.execute("select current_setting('enable_progress_bar')")
        if setting.fetchall() == [(True,)]:
            connection.execute("set enable_progress_bar = false")

    interruptible(connection, hide)


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
    thread = threading.Thread(target=run, name="dask-strata-query", daemon=True)
    try:
        thread.start()
        ended.wait()
        thread.join()  # it releases DuckDB's objects, and at the interpreter's exit it would abort
    except BaseException:
        # DuckDB ignores an interruption before the query has started: repeat it. If the signal
        # interrupted `start`, the thread runs nevertheless.
        while thread in threading.enumerate() and not ended.is_set():
            connection.interrupt()
            ended.wait(_INTERRUPT_INTERVAL)
        raise
    if errors:
        raise errors.pop()  # kept in the list, it would keep itself and the connection alive
    return results[0]
