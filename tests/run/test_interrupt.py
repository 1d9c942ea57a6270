"""Ctrl-C and time limits end queries; no text of a query or an error is taken for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psutil
import pytest

import dask_strata
from dask_strata.errors import InterruptedQueryError, QueryError
from dask_strata.run.duckdb_session import connect, fetch
from dask_strata.run.workspace import Workspace
from dask_strata.store.interruptible import interruptible
from tests.conftest import wait_until
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

#: Queries that take hours. They name a table, as queries that name none have all tables.
LONG = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b, tasks c"
SORT = "select md5(a::text) as h from tasks, range(3000000000) t(a) order by h limit 1"
PARAMETER = LONG + " where a.range > ?"

#: CPU seconds that no part of a call takes but its query.
CPU_SECONDS = 2

#: CPU seconds after which the command has certainly begun its query.
QUERY_BEGUN = 6


@pytest.fixture
def run(tmp_path: Path) -> dask_strata.Run:
    """A small run, whose table `tasks` has been computed."""
    run = dask_strata.open_run(small_run(tmp_path / "run"))
    run.sql("select 1 from tasks")
    return run


def ctrl_c() -> None:
    """Send SIGINT to this process, as a terminal does."""
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def while_it_runs(action: Callable[[], object]) -> Iterator[None]:
    """Do something once the block's query has taken CPU time, unless the block ends before."""
    ended, start = threading.Event(), time.process_time()

    def act() -> None:
        while time.process_time() < start + CPU_SECONDS:
            if ended.wait(0.05):
                return
        action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("query", [LONG, SORT, f"explain analyze {LONG}"])
def test_ctrl_c_ends_a_users_query(run: dask_strata.Run, query: str) -> None:
    """With an error of its own; the run can be queried again."""
    with while_it_runs(ctrl_c), pytest.raises(InterruptedQueryError):
        run.sql(query, limit=3)
    assert run.sql("select count(*) as n from tasks").to_arrow()["n"].to_pylist() == [2]


def test_ctrl_c_ends_a_trusted_query(run: dask_strata.Run) -> None:
    """With parameters too."""
    with while_it_runs(ctrl_c), pytest.raises(InterruptedQueryError):
        run.rows(PARAMETER, 3)
    assert len(run.rows("from tasks where key = ?", "a-1")) == 1


def test_ctrl_c_ends_the_computation_of_a_table() -> None:
    """The table is computed when it is needed again."""
    workspace = Workspace()
    execute = workspace.connection.execute
    execute("create temp table tasks as select 1 as key")
    with while_it_runs(ctrl_c), pytest.raises(InterruptedQueryError):
        workspace.do(lambda: execute(f"create temp table t as {LONG}"))
    workspace.do(lambda: execute("create or replace temp table t as select 1"))
    workspace.close()


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_interrupt_ends_a_query_of_any_thread(
    run: dask_strata.Run, *, in_main_thread: bool
) -> None:
    """As the server's time limit does."""
    caught: list[BaseException] = []

    def ask() -> None:
        with pytest.raises(InterruptedQueryError) as error:
            run.sql(LONG)
        caught.append(error.value)

    with while_it_runs(run.interrupt):
        if in_main_thread:
            ask()
        else:
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join(60)
    assert len(caught) == 1


@pytest.mark.parametrize("query", ["select error('Query interrupted')", "from 'Query interrupted'"])
def test_an_error_that_mentions_an_interruption_is_an_error(
    run: dask_strata.Run, query: str
) -> None:
    """Its type decides, not its text."""
    with pytest.raises(QueryError, match="Query interrupted") as caught:
        run.sql(query)
    assert not isinstance(caught.value, InterruptedQueryError)


def test_errors_and_results_pass_through() -> None:
    """A query in a thread of its own fails with DuckDB's error."""
    connection = connect()
    assert fetch(connection, "select ? as n", [3]).to_pylist() == [{"n": 3}]
    with pytest.raises(duckdb.CatalogException):
        fetch(connection, "from no_such_table")


def test_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    """Status 130 and one line, as shells expect; a table that contains the words is no reason."""
    folder = small_run(tmp_path / "run")
    command = [sys.executable, "-m", "dask_strata", "query", str(folder)]
    done = subprocess.run(
        [*command, "select 'Query interrupted' as text"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Query interrupted" in done.stdout) == (0, True)
    failed = subprocess.run(
        [*command, "select error('Query interrupted')"], capture_output=True, text=True, check=False
    )
    assert (failed.returncode, "Query interrupted" in failed.stderr) == (1, True)
    process = subprocess.Popen(
        [*command, SORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    used = psutil.Process(process.pid).cpu_times
    wait_until(lambda: used().user > QUERY_BEGUN, 120)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    # click puts "Interrupted." on a line of its own, behind the ^C of a terminal.
    assert (process.returncode, output, errors.strip()) == (130, "", "Interrupted.")


def test_ctrl_c_while_the_query_s_thread_starts_ends_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the connection stays busy, and closing it fails with another error."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "dask-strata-query":
            raise KeyboardInterrupt

    connection = duckdb.connect()
    query = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b"
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(InterruptedQueryError):
            interruptible(connection, lambda: connection.execute(query))
    assert connection.execute("select 1").fetchall() == [(1,)]
