"""What stands around a task while it is recorded, where something unusual stands there too."""

# Tasks open files in all the ways there are, not only in the ones that we prefer.
# ruff: noqa: PTH109, PTH123

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.metrics import count, section
from dask_strata.recorder.pipeline.resource_usage import Sample
from dask_strata.recorder.sources.executions import Execution, ExecutionHook, current
from tests.conftest import assert_whole, rows

MB = 1_000_000
FUNCTIONS = ("_run_task", "_run_task_async", "_run_actor")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of one worker process with one thread."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        yield made


def wrap() -> None:
    """Have somebody else wrap what runs tasks: his own, and with each argument by its name."""
    import distributed.worker as module

    def wrapped(inner: Any) -> Any:
        @functools.wraps(inner)
        def foreign(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(inner).bind(*args, **kwargs)
            return inner(**bound.arguments)

        foreign.foreign = inner
        return foreign

    for name in FUNCTIONS:
        setattr(module, name, wrapped(getattr(module, name)))


def foreign() -> list[bool]:
    """Tell which functions are his."""
    import distributed.worker as module

    return [hasattr(getattr(module, name), "foreign") for name in FUNCTIONS]


def unwrap() -> None:
    """Put back what Dask has."""
    import distributed.worker as module

    for name in FUNCTIONS:
        setattr(module, name, inspect.unwrap(getattr(module, name)))


async def slowly(x: int) -> int:
    """Be a coroutine."""
    return x


def forth(x: int) -> int:
    """Be a function."""
    return x


def test_who_wraps_dask_while_it_is_recorded_is_left_alone(client: Client, runs: Path) -> None:
    """A wrapper that comes while we record stays, and later recordings see each run once."""
    try:
        with dask_strata.record(runs, client=client) as first:
            client.run(wrap)
            assert client.submit(forth, 1, key="first").result() == 1
            assert client.submit(slowly, 1, key="first-slowly").result() == 1
        assert set(map(tuple, client.run(foreign).values())) == {(True,) * 3}
        with dask_strata.record(runs, client=client) as second:
            assert client.submit(forth, 2, key="second").result() == 2
            assert client.submit(slowly, 2, key="second-slowly").result() == 2
        assert client.submit(forth, 3, key="third").result() == 3
    finally:
        client.run(unwrap)
    for run, name in ((first, "first"), (second, "second")):
        found = rows(run, "select key, kind, outcome from executions order by key")
        assert [tuple(row.values()) for row in found] == [
            (name, "thread", "finished"),
            (f"{name}-slowly", "coroutine", "finished"),
        ]
        assert_whole(run)


def fork_and_report() -> int:
    """Return the exit status of a child that reports, and looks whether it is recorded."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        with section("in the child"):
            count("in the child")
        os._exit(0 if current.get() is None else 3)
    finally:
        os._exit(4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_of_a_task_is_not_recorded(client: Client, runs: Path) -> None:
    """What a forked child does is not its parent's, and waits for no lock of its parent's."""
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(fork_and_report, key="forks").result() == 0
    assert len(run.reports) == 0
    assert rows(run, "select elsewhere from executions") == [{"elsewhere": "processes"}]


def read(path: str, times: int) -> None:
    """Read a file some times."""
    for _ in range(times):
        with open(path, "rb", buffering=0) as file:
            file.read()


def read_in_both(path: str) -> None:
    """Read a file twice, and five times in a thread of one's own."""
    read(path, 2)
    thread = threading.Thread(target=read, args=(path, 5))
    thread.start()
    thread.join()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux accounts for it")
def test_what_no_task_is_known_to_have_read_is_unattributed(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """Bytes that a thread of the user's reads are the process's, and told as nobody's."""
    path = tmp_path / "data"
    path.write_bytes(b"x" * MB)
    with dask_strata.record(runs, client=client):  # the worker has imported all of us since
        client.submit(read_in_both, str(path), key="before").result()
    with dask_strata.record(runs, client=client) as run:
        client.submit(read_in_both, str(path), key="reads").result()
    (found,) = rows(run, "select * from process_io where task_read_bytes is not null")
    assert found["task_read_bytes"] == 2 * MB
    # Modules that are imported and the kernel's own accounts are read meanwhile, too.
    assert 5 * MB <= found["unattributed_read_bytes"] < 6 * MB
    assert found["read_bytes"] == found["task_read_bytes"] + found["unattributed_read_bytes"]
    assert found["roles"] == "worker"
    others = rows(run, "select * from process_io where process is null")
    assert others
    assert {row["unattributed_read_bytes"] for row in others} == {None}
    samples = rows(run, "select * from process_samples")
    assert all(value is not None for row in samples for value in row.values())


def read_relative(folder: str, name: str) -> str:
    """Read a file in a folder, and be elsewhere afterwards."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with open(name) as file:
            return file.read()
    finally:
        os.chdir(before)


def test_a_relative_path_is_taken_where_it_was_opened(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """A file is told by the folder that its task was in, not by the one that we are in."""
    (tmp_path / "data").write_text("hello")
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(read_relative, str(tmp_path), "data").result() == "hello"
    assert rows(run, "select uri from file_opens") == [{"uri": str(tmp_path / "data")}]


def test_one_odd_run_costs_no_other() -> None:
    """A run that cannot be read is counted; those before and after it are written."""
    tap = ExecutionHook(object(), "tcp://127.0.0.1:1", opens=False)
    try:
        odd = Sample(0, 0, None, None, b"odd")
        for number, sample in enumerate((None, odd, None)):
            run = Execution(f"x-{number}", 1, "thread", 1, number, before=sample, after=sample)
            tap._runs.append(run)
        batches = list(tap.rows())
    finally:
        tap.remove()
    written = [b.columns["execution"] for b in batches if b.table == "executions"]
    assert written == [[0], [2]]
    ((reason,),) = [b.columns["reason"] for b in batches if b.table == "losses"]
    assert "IndexError" in reason


def test_a_section_may_be_left_elsewhere() -> None:
    """One that is entered in one task and left in another raises in neither, and is none's."""
    runs = [Execution(f"x-{i}", 1, "thread", threading.get_ident(), i) for i in range(2)]
    open_section = section("across")
    for run, step in zip(runs, (open_section.__enter__, None), strict=True):
        token = current.set(run)
        try:
            if step is None:
                open_section.__exit__(None, None, None)
            else:
                step()
        finally:
            current.reset(token)
    assert [run.reported for run in runs] == [{}, {}]


def test_a_section_may_be_used_in_threads() -> None:
    """One object for a section is in use in several threads at once, each with its own time."""
    run = Execution("x", 1, "thread", threading.get_ident(), 0)
    inside, both = threading.Event(), section("both")

    def other() -> None:
        current.set(run)
        with both:
            inside.set()
            done.wait(60)

    done = threading.Event()
    thread = threading.Thread(target=other)
    token = current.set(run)
    try:
        with both:
            began = time.perf_counter()
            thread.start()
            assert inside.wait(60)
            waited = time.perf_counter() - began
        (outer, _) = run.reported["section", "both"]
        done.set()
        thread.join()
    finally:
        current.reset(token)
    assert outer >= waited, "it is not measured from when the other thread entered it"
    assert run.reported["section", "both"][1] == 2
    assert both._began == {}
