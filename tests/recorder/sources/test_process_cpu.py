"""CPU time of tasks, their processes and other threads, compared with the tasks' own clocks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, Worker

import dask_strata
from dask_strata import Run
from dask_strata.analysis.story import LEAST_OTHER_CPU_SECONDS
from tests.conftest import assert_whole, rows
from tests.recorder.sources.measured_tasks import meet

pytestmark = pytest.mark.long

#: The kernel adds the time of another thread that runs to the process's clock once per tick, at
#: least 100 times a second.
TICK = 0.01

#: A time of Dask's is a float of seconds since the epoch.
FLOAT = 1e-6

CORES = os.cpu_count() or 1


def clocks() -> dict[str, float]:
    """Return the seconds of the wall clock, of the calling thread's clock and of its process's."""
    return {
        "wall": time.perf_counter(),
        "thread": time.thread_time(),
        "process": time.process_time(),
    }


def since(first: dict[str, float]) -> dict[str, float]:
    """Return the seconds that have passed on each clock."""
    now = clocks()
    return {name: now[name] - first[name] for name in first}


def spin(seconds: float) -> dict[str, float]:
    """Use that much CPU time in this thread."""
    first = clocks()
    while since(first)["thread"] < seconds:
        pass
    return since(first)


def hash_in_threads(n: int) -> dict[str, float]:
    """Use CPU time in that many further threads; hashlib releases the GIL."""
    data = bytes(20_000_000)
    first = clocks()
    threads = [
        threading.Thread(target=lambda: [hashlib.sha256(data) for _ in range(8)]) for _ in range(n)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return since(first)


def multiply(n: int) -> dict[str, float]:
    """Multiply matrices until the other threads of the process have used 0.2 s."""
    a = np.random.default_rng(1).random((n, n))
    first = clocks()
    for _ in range(100):
        a @ a
        now = since(first)
        if now["process"] - now["thread"] > 0.2:
            break
    return since(first)


async def await_and_spin(seconds: float) -> dict[str, float]:
    """Use CPU time in a coroutine."""
    await asyncio.sleep(0)
    return spin(seconds)


def found(run: Run) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in rows(run, "from attempts")}


def agrees(attempt: dict[str, Any], spent: dict[str, float], threads: int) -> None:
    """Assert that an attempt's CPU times are those that its task measured."""
    # The record also has the calls around the task's own readings.
    around = attempt["compute_seconds"] - spent["wall"] + FLOAT
    assert around >= 0
    assert 0 <= attempt["cpu_seconds"] - spent["thread"] <= around
    process = attempt["process_cpu_seconds"] - spent["process"]
    assert -TICK * threads <= process <= around * CORES + TICK * threads
    other = attempt["other_cpu_seconds"] - (spent["process"] - spent["thread"])
    assert -TICK * threads - around <= other <= around * CORES + TICK * threads


@pytest.mark.release
def test_threads_of_blas_are_known(runs: Path, strata: Callable[..., Any]) -> None:
    """CPU time of OpenBLAS's threads is the process's and that of other threads."""
    with (
        # Dask limits OpenBLAS to one thread.
        dask.config.set(
            {
                "distributed.nanny.pre-spawn-environ": {
                    "OPENBLAS_NUM_THREADS": "2",
                    "OMP_NUM_THREADS": "2",
                    "MKL_NUM_THREADS": "2",
                }
            }
        ),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.submit(multiply, 100).result()  # imports NumPy
        with dask_strata.record(runs, client=client) as run:
            spent = client.submit(multiply, 700, key="blas").result()
            spun = client.submit(spin, 0.2, key="spin").result()
    if spent["process"] - spent["thread"] < 0.2:
        pytest.skip("NumPy's BLAS has one thread")
    assert_whole(run)
    blas = found(run)["blas"]
    agrees(blas, spent, threads=4)
    assert blas["other_cpu_seconds"] > 0.15
    assert blas["elsewhere"] is None, "OpenBLAS does not start its threads through Python"
    agrees(found(run)["spin"], spun, threads=4)
    (task,) = rows(run, "from tasks where key = 'blas'")
    for column in ("cpu_seconds", "other_cpu_seconds"):
        assert task[column] == blas[column]
    story = strata("story", run.path, "blas", check=True).stdout
    assert "other threads of the process used CPU for" in story
    assert " · other threads " in story.splitlines()[1]
    # OpenBLAS's threads go on for a while after the last product.
    least = found(run)["spin"]["other_cpu_seconds"] >= LEAST_OTHER_CPU_SECONDS
    story = strata("story", run.path, "spin", check=True).stdout
    assert ("other threads" in story) is least
    assert "other_cpu_seconds" in strata("tasks", run.path, check=True).stdout


def test_threads_that_python_started(client: Client, runs: Path) -> None:
    """CPU time of a task's Python threads is that of other threads, and of no later task."""
    with dask_strata.record(runs, client=client) as run:
        spent = client.submit(hash_in_threads, 3, key="threads").result()
        spun = client.submit(spin, 0.1, key="spin").result()
    agrees(found(run)["threads"], spent, threads=5)
    agrees(found(run)["spin"], spun, threads=5)


def test_with_another_task_it_is_the_processs_only(two_threads: Client, runs: Path) -> None:
    """If tasks overlap, the CPU time of the process is known, that of other threads is not."""
    with dask_strata.record(runs, client=two_threads) as run:
        pair = [two_threads.submit(spin, 0.3, key=f"spin-{i}", pure=False) for i in range(2)]
        meeting = two_threads.gather(pair)
        alone = two_threads.submit(spin, 0.1, key="alone").result()
        two_threads.gather([two_threads.submit(meet, i, key=f"meet-{i}") for i in range(2)])
    attempts = found(run)
    for i in range(2):
        attempt = attempts[f"spin-{i}"]
        assert attempt["cpu_seconds"] >= meeting[i]["thread"]
        assert attempt["process_cpu_seconds"] >= meeting[i]["process"] - 2 * TICK
        assert attempts[f"meet-{i}"]["shared"]
        assert attempts[f"meet-{i}"]["other_cpu_seconds"] is None
    for attempt in attempts.values():
        assert (attempt["other_cpu_seconds"] is None) == attempt["shared"]
    agrees(attempts["alone"], alone, threads=3)


def test_a_task_that_ran_when_the_recording_began(two_threads: Client, runs: Path) -> None:
    """A task beside one that started before the recording is shared, as long as that one runs."""

    def wait() -> None:
        Event("begun").set()
        end = Event("end")
        while not end.is_set():
            spin(0.01)

    waiting = two_threads.submit(wait, key="waiting")
    assert Event("begun", client=two_threads).wait(60)
    with dask_strata.record(runs, client=two_threads) as run:
        two_threads.submit(spin, 0.2, key="beside").result()
        Event("end", client=two_threads).set()
        waiting.result()
        two_threads.submit(spin, 0.05, key="alone").result()
    attempts = found(run)
    assert attempts["beside"]["shared"]
    assert attempts["beside"]["other_cpu_seconds"] is None
    assert not attempts["alone"]["shared"]
    assert attempts["alone"]["other_cpu_seconds"] is not None


class Inline(Executor):
    """An executor of one thread that is not a pool."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # type: ignore[override]
        future: Future[Any] = Future()

        def run() -> None:
            future.set_result(function(*args, **kwargs))

        threading.Thread(target=run).start()
        return future


def in_executor(name: str, *args: Any, key: str) -> Any:
    with dask.annotate(executor=name):
        return dask.delayed(args[0], pure=False)(*args[1:], dask_key_name=key)


@pytest.fixture
def executors(request: pytest.FixtureRequest) -> Iterator[tuple[Client, LocalCluster]]:
    """A client of a worker in this process, with a further executor."""
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        request.param() as further,
    ):

        async def start() -> Worker:
            return await Worker(
                cluster.scheduler_address, nthreads=1, executor={"further": further}
            )

        worker = client.sync(start)
        yield client, cluster
        client.sync(worker.close)


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def processes() -> ProcessPoolExecutor:
    import multiprocessing

    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("executors", [threads, processes, Inline], indirect=True)
def test_tasks_in_other_executors(
    executors: tuple[Client, LocalCluster], runs: Path, request: pytest.FixtureRequest
) -> None:
    """Each is right or null; so is a task beside one in an executor that is not measured."""
    client, _ = executors
    kind = request.node.callspec.params["executors"]
    with dask_strata.record(runs, client=client) as run:
        further = client.compute(in_executor("further", spin, 0.2, key="further")).result()
        default = client.submit(spin, 0.1, key="default").result()
        both = [
            client.compute(in_executor("further", spin, 0.5, key="beside")),
            client.submit(spin, 0.3, key="spin"),
        ]
        client.gather(both)
    attempts = found(run)
    if kind is threads:
        agrees(attempts["further"], further, threads=8)
    else:
        for column in ("cpu_seconds", "process_cpu_seconds", "other_cpu_seconds"):
            assert attempts["further"][column] is None
    if kind is Inline:
        for key in ("default", "spin"):
            assert attempts[key]["cpu_seconds"] >= 0.1
            assert attempts[key]["shared"] is None, "whether a task overlaps is unknown"
            assert attempts[key]["other_cpu_seconds"] is None
    else:
        agrees(attempts["default"], default, threads=8)
    if kind is processes:
        assert attempts["spin"]["other_cpu_seconds"] < 0.2
    elif attempts["spin"]["other_cpu_seconds"] is not None:
        assert kind is threads
        assert not attempts["spin"]["shared"]


def test_coroutines_and_actors(client: Client, runs: Path) -> None:
    """A coroutine shares its thread with others and has no CPU time; an actor's call has one."""
    with dask_strata.record(runs, client=client) as run:
        client.submit(await_and_spin, 0.1, key="coroutine").result()
        actor = client.submit(Spinner, actor=True, key="actor")
        spent = actor.result().spin(0.1).result()
    coroutine = found(run)["coroutine"]
    for column in ("cpu_seconds", "process_cpu_seconds", "other_cpu_seconds"):
        assert coroutine[column] is None
    (call,) = rows(run, "from executions where kind = 'actor'")
    around = (call["stop"] - call["start"]).total_seconds() - spent["wall"] + FLOAT
    assert 0 <= call["cpu_seconds"] - spent["thread"] <= around
    assert call["process_cpu_seconds"] >= call["cpu_seconds"]


class Spinner:
    """An actor that uses CPU time."""

    def spin(self, seconds: float) -> dict[str, float]:
        return spin(seconds)


def tiny_task() -> float:
    """Use hardly any CPU time; return it."""
    before = time.thread_time()
    sum(range(10))
    return time.thread_time() - before


def fail() -> None:
    raise ZeroDivisionError("on purpose")


def test_no_tiny_task_has_more_cpu_than_time(client: Client, runs: Path) -> None:
    """CPU time is measured within the compute time of Dask, which is within the execution."""
    n = 2_000
    with dask_strata.record(runs, client=client) as run:
        futures = {f"tiny-{i}": client.submit(tiny_task, key=f"tiny-{i}") for i in range(n)}
        spent = dict(zip(futures, client.gather(list(futures.values())), strict=True))
        assert isinstance(client.submit(fail, key="fails").exception(), ZeroDivisionError)
    (tiny,) = rows(
        run,
        f"""
        select count(*) as n, count(cpu_seconds) as measured,
               count(*) filter (cpu_seconds > compute_seconds + {FLOAT}) as above,
               count(*) filter (process_cpu_seconds < cpu_seconds) as below,
               count(*) filter (cpu_seconds > 0) as used
        from attempts
        """,
    )
    assert tiny["n"] == tiny["measured"] == n + 1
    assert (tiny["above"], tiny["below"]) == (0, 0)
    # The CPU clock of a thread may stand still around a preemption: two readings were equal once in
    # millions, without a recorder, where four processes shared two cores of a virtual machine.
    assert tiny["used"] >= 0.99 * n
    for row in rows(run, "select key, cpu_seconds from attempts where key <> 'fails'"):
        assert row["cpu_seconds"] >= spent[row["key"]] - FLOAT
    (execution,) = rows(
        run,
        """
        select count(*) as n from executions
        where cpu_seconds * 1e9 > epoch_ns(stop) - epoch_ns(start)
        """,
    )
    assert execution["n"] == 0
