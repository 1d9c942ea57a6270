"""Tasks that nobody computes, and workers that do not answer, on a real cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dask_strata
from dask_strata import open_run
from tests.conftest import wait_until
from tests.recorder.stuck import tasks
from tests.recorder.stuck.conftest import found, source_of

if TYPE_CHECKING:
    from distributed import Client

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick")]


def test_a_resource_that_no_worker_has(shared: Client, runs: Path) -> None:
    """The task's restriction is the reason, and further such tasks are counted."""
    with dask_strata.record(runs, client=shared):
        futures = shared.map(abs, range(5), key="needs-gpu", resources={"GPU": 2})
        row = found(shared, lambda row: row["prefix"] == "needs-gpu")
        for future in futures:
            future.cancel()
        wait_until(lambda: not source_of(shared).present)
    assert row["kind"] == "nobody-computes"
    assert row["reason"] == "it requires 2 of the resource 'GPU', of which no worker has any"
    assert row["n_others"] == 4
    assert row["worker"] is None


def test_a_worker_that_is_not_connected(shared: Client, runs: Path) -> None:
    """A task that may run only on a worker that has left is named with this worker."""
    with dask_strata.record(runs, client=shared):
        future = shared.submit(abs, -1, key="elsewhere", workers=["tcp://127.0.0.1:1"])
        row = found(shared, lambda row: row["key"] == "elsewhere")
        future.cancel()
    assert row["reason"] == "it may run only on the workers tcp://127.0.0.1:1"


def ignore_tasks(dask_worker: Any) -> None:
    """Make a worker lose the tasks that the scheduler assigns to it."""
    dask_worker.kept = dask_worker.stream_handlers["compute-task"]
    dask_worker.stream_handlers["compute-task"] = lambda **_: None


def take_tasks(dask_worker: Any) -> None:
    """Undo `ignore_tasks`."""
    dask_worker.stream_handlers["compute-task"] = dask_worker.kept


def test_a_worker_that_lost_its_task(shared: Client, runs: Path) -> None:
    """A task that its worker does not begin is named with the worker."""
    worker = next(iter(shared.scheduler_info()["workers"]))
    with dask_strata.record(runs, client=shared):
        shared.run(ignore_tasks, workers=[worker])
        future = shared.submit(abs, -1, key="lost", workers=[worker])
        row = found(shared, lambda row: row["key"] == "lost")
        future.cancel()
        shared.run(take_tasks, workers=[worker])
    assert row["worker"] == worker
    assert row["reason"] == "its worker has all its dependencies, and reports no task to execute"
    assert row["seconds"] >= 2


def forget_to_run(key: str, dask_scheduler: Any) -> None:
    """Leave the scheduler in the state of a bug: a task is released and nothing computes it."""
    ts = dask_scheduler.tasks[key]
    dask_scheduler.unrunnable.pop(ts)
    ts.state = "released"


def run_again(key: str, dask_scheduler: Any) -> None:
    """Undo `forget_to_run`."""
    import time

    ts = dask_scheduler.tasks[key]
    ts.state = "no-worker"
    dask_scheduler.unrunnable[ts] = time.monotonic()


def both_have_arrived(client: Client) -> bool:
    """Tell whether the scheduler knows both tasks of the test below."""
    scheduler = client.cluster.scheduler
    waits = scheduler.tasks.get("waits")
    return bool(scheduler.unrunnable) and waits is not None and waits.state == "waiting"


def test_a_dependency_that_nobody_computes(shared: Client, runs: Path) -> None:
    """While the scheduler rests, a waiting task is named with the dependency that it waits for."""
    with dask_strata.record(runs, client=shared):
        first = shared.submit(abs, -1, key="never-run", resources={"GPU": 1})
        second = shared.submit(abs, first, key="waits")
        # A dependent that arrives later would have Dask compute the released task again.
        wait_until(lambda: both_have_arrived(shared))
        shared.run_on_scheduler(forget_to_run, "never-run")
        row = found(shared, lambda row: row["key"] == "waits")
        shared.run_on_scheduler(run_again, "never-run")
        second.cancel()
        first.cancel()
    assert row["reason"] == "it waits for never-run, which no worker has: its state is released"


def test_a_stopped_worker_does_not_answer(shared: Client, runs: Path) -> None:
    """A worker whose process is stopped is named; afterwards it continues, and nothing is stuck."""
    pids = shared.run(os.getpid)
    worker, pid = next(iter(pids.items()))
    with dask_strata.record(runs, client=shared) as run:
        try:
            os.kill(pid, signal.SIGSTOP)
            row = found(shared, lambda row: row["kind"] == "no-answer")
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not source_of(shared).present)
        assert shared.submit(abs, -3, workers=[worker], pure=False).result() == 3
    assert row["worker"] == worker
    assert row["key"] is None
    assert row["seconds"] >= 3
    assert "no task is assigned to it" in row["reason"]
    assert open_run(run.path).rows("select * from losses") == []


def test_a_task_that_holds_the_gil_stops_its_worker(shared: Client, runs: Path) -> None:
    """A worker whose event loop cannot run is named with the task that it has."""
    with dask_strata.record(runs, client=shared):
        future = shared.submit(tasks.hold_gil, 9, key="holds-the-gil")
        row = found(shared, lambda row: row["kind"] == "no-answer")
        assert future.result() == 9
        wait_until(lambda: not source_of(shared).present)
    assert "holds-the-gil" in row["reason"]
