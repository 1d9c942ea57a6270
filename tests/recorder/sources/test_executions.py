"""The measurements around tasks, in unusual surroundings: other wrappers, forks, threads."""

# Tasks open files with open(), as users do.
# ruff: noqa: PTH123

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dask_strata
from dask_strata.metrics import count, current_execution, section
from dask_strata.recorder.pipeline.resource_usage import Sample
from dask_strata.recorder.sources.executions import Execution, ExecutionHook
from tests.conftest import assert_whole, rows
from tests.recorder.sources.measured_tasks import MB

if TYPE_CHECKING:
    from distributed import Client

FUNCTIONS = ("_run_task", "_run_task_async", "_run_actor")


def wrap() -> None:
    """Wrap Dask's functions like a foreign library, which passes all arguments by keyword."""
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
    """Return which functions have the foreign wrapper outermost."""
    import distributed.worker as module

    return [hasattr(getattr(module, name), "foreign") for name in FUNCTIONS]


def unwrap() -> None:
    """Restore Dask's functions."""
    import distributed.worker as module

    for name in FUNCTIONS:
        setattr(module, name, inspect.unwrap(getattr(module, name)))


async def slowly(x: int) -> int:
    """Return the argument from a coroutine."""
    return x


def forth(x: int) -> int:
    """Return the argument."""
    return x


def test_a_foreign_wrapper_stays_in_place(client: Client, runs: Path) -> None:
    """A wrapper placed during a recording stays, and later recordings have each execution once."""
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
    """Fork; the child reports metrics and exits with 0 if it is part of no execution."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        with section("in the child"):
            count("in the child")
        os._exit(0 if current_execution.get() is None else 3)
    finally:
        os._exit(4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_of_a_task_is_not_recorded(client: Client, runs: Path) -> None:
    """A forked child is not part of its parent's execution, and does not wait for its locks."""
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(fork_and_report, key="forks").result() == 0
    assert len(run.reports) == 0
    assert rows(run, "select elsewhere from executions") == [{"elsewhere": "processes"}]


def read(path: str, times: int) -> None:
    """Read a file that many times."""
    for _ in range(times):
        with open(path, "rb", buffering=0) as file:
            file.read()


def read_in_both(path: str) -> None:
    """Read a file twice, and five times in a new thread."""
    read(path, 2)
    thread = threading.Thread(target=read, args=(path, 5))
    thread.start()
    thread.join()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux accounts for it")
def test_reads_of_a_users_thread_are_not_the_tasks_own(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """Bytes that a user's thread reads are another thread's, or unattributed.

    They are unattributed while the recorder gathers facts, which reads an unknown number of bytes.
    """
    path = tmp_path / "data"
    path.write_bytes(b"x" * MB)
    with dask_strata.record(runs, client=client):  # after it the worker has imported the recorder
        client.submit(read_in_both, str(path), key="before").result()
    with dask_strata.record(runs, client=client) as run:
        client.submit(read_in_both, str(path), key="reads").result()
    (found,) = rows(run, "select * from process_io where task_read_bytes is not null")
    assert found["task_read_bytes"] == 2 * MB
    # The process also reads modules to import.
    others = (found["other_read_bytes"] or 0) + found["unattributed_read_bytes"]
    assert 5 * MB <= others < 6 * MB
    assert found["read_bytes"] == 2 * MB + others + found["recorder_read_bytes"]
    assert found["roles"] == "worker"
    others = rows(run, "select * from process_io where process is null")
    assert others
    assert {row["unattributed_read_bytes"] for row in others} == {None}
    samples = rows(run, "select * from process_samples")
    assert all(value is not None for row in samples for value in row.values())


def test_a_malformed_execution_costs_no_other() -> None:
    """A malformed execution is counted as a loss; those before and after it are recorded."""
    hook = ExecutionHook(object(), "tcp://127.0.0.1:1", opens=False)
    try:
        odd = Sample(0, None, None, b"odd")
        for number, sample in enumerate((None, odd, None)):
            hook._executions.append(
                Execution(f"x-{number}", 1, "thread", 1, number, before=sample, after=sample)
            )
        batches = list(hook.rows())
    finally:
        hook.remove()
    written = [b.columns["execution"] for b in batches if b.table == "executions"]
    assert written == [[0], [2]]
    ((reason,),) = [b.columns["reason"] for b in batches if b.table == "losses"]
    assert "IndexError" in reason


def test_a_section_that_ends_in_another_task() -> None:
    """A section that starts in one task and ends in another raises in neither and is dropped."""
    executions = [Execution(f"x-{i}", 1, "thread", threading.get_ident(), i) for i in range(2)]
    open_section = section("across")
    for execution, step in zip(executions, (open_section.__enter__, None), strict=True):
        token = current_execution.set(execution)
        try:
            if step is None:
                open_section.__exit__(None, None, None)
            else:
                step()
        finally:
            current_execution.reset(token)
    assert [execution.reported for execution in executions] == [{}, {}]


def test_a_section_may_be_used_in_threads() -> None:
    """Several threads may use one section object at once; each has its own time."""
    execution = Execution("x", 1, "thread", threading.get_ident(), 0)
    inside, both = threading.Event(), section("both")

    def other() -> None:
        current_execution.set(execution)
        with both:
            inside.set()
            done.wait(60)

    done = threading.Event()
    thread = threading.Thread(target=other)
    token = current_execution.set(execution)
    try:
        with both:
            began = time.perf_counter()
            thread.start()
            assert inside.wait(60)
            waited = time.perf_counter() - began
        (outer, _) = execution.reported["section", "both"]
        done.set()
        thread.join()
    finally:
        current_execution.reset(token)
    assert outer >= waited, "the time must not start when the other thread enters"
    assert execution.reported["section", "both"][1] == 2
    assert both._began == {}
