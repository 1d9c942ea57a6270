"""The insight of a blocked event loop, compared with the times of the code that blocked it."""

from __future__ import annotations

import asyncio
import ctypes
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, Event, LocalCluster

import dask_strata
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.diagnosis import Insight
from dask_strata.analysis.summary import summarize

pytestmark = pytest.mark.long

#: Pause between two looks at a loop in seconds, with some margin.
NEAR = 0.2


def nap() -> float:
    """Report the start, compute for 0.8 s, and return the time."""
    Event("napping").set()
    time.sleep(0.8)
    return time.time()


async def block_the_loop(seconds: float) -> tuple[float, float]:
    """Block the event loop on which this runs; return when."""
    await asyncio.sleep(0)
    start = time.time()
    time.sleep(seconds)  # noqa: ASYNC251  it is to block the loop
    return start, time.time()


def hold_the_gil() -> tuple[float, float, float]:
    """Hold the GIL in one call of a C function; return when, and its CPU time."""
    start, cpu = time.time(), time.process_time()
    sum(range(300_000_000))
    return start, time.time(), time.process_time() - cpu


def wait_with_the_gil() -> tuple[float, float]:
    """Hold the GIL in a C function that waits; return when."""
    start = time.time()
    ctypes.PyDLL(None).usleep(2_500_000)
    return start, time.time()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a cluster with one worker."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as made,
    ):
        made.run(int)  # the worker imports this module on its loop
        yield made


def of_loop(run: dask_strata.Run, whose: str) -> Insight:
    """Return the insight of a blocked loop."""
    found = [i for i in summarize(run).insights if i.cause == "blocked-loop"]
    assert len(found) == 1
    assert found[0].text.startswith(f"the event loop of {whose}")
    return found[0]


def seconds(insight: Insight) -> list[float]:
    """Return the seconds in all and at most, from text and evidence."""
    return [
        float(re.search(pattern, text)[1])
        for pattern, text in (
            (r"blocked for ([\d.]+) s", insight.text),
            (r"the longest ([\d.]+) s", insight.evidence),
        )
    ]


def test_a_blocked_scheduler(client: Client, tmp_path: Path) -> None:
    """The path waits from the end of a task until the end of the block that delays its report."""
    with dask_strata.record(tmp_path, client=client) as run:
        task = client.submit(nap, pure=False)
        assert Event("napping").wait(60)
        Event("napping").clear()
        before = time.time()
        start, stop = client.run_on_scheduler(block_the_loop, 2)
        after = time.time()
        ended = task.result()
        received = time.time()
    assert start < ended < stop
    insight = of_loop(run, "the scheduler")
    in_all, most = seconds(insight)
    assert stop - start - NEAR < most <= in_all < after - before + NEAR
    assert "mostly by code on it that waited and hardly used the CPU" in insight.text
    assert "a scheduler plugin or callback that sleeps" in insight.advice
    # The graph of the first task is on its way to a blocked scheduler, too.
    assert stop - ended - NEAR < insight.seconds < received - before + NEAR
    assert critical_path(run).seconds["blocked event loop"] >= insight.seconds - 1e-6


def test_a_call_that_holds_the_gil(client: Client, tmp_path: Path) -> None:
    """While a call holds the scheduler's GIL, a task waits to be assigned."""
    with dask_strata.record(tmp_path, client=client) as run:
        task = client.submit(nap, pure=False)
        assert Event("napping").wait(60)
        Event("napping").clear()
        before = time.time()
        client.run_on_scheduler(hold_the_gil)
        task.result()
        after = time.time()
    insight = of_loop(run, "the scheduler")
    in_all, most = seconds(insight)
    assert most <= in_all < after - before + NEAR
    assert "while one call held Python's GIL or many threads competed for it" in insight.text
    assert insight.seconds < in_all + NEAR


def test_a_loop_that_nothing_waited_for_is_no_insight(client: Client, tmp_path: Path) -> None:
    """A task that holds the GIL blocks its worker's loop; it is the only one that needs it."""
    client.submit(len, wait_with_the_gil, pure=False).exception()  # imports this module
    with dask_strata.record(tmp_path / "runs", client=client) as run:
        start, stop = client.submit(wait_with_the_gil, pure=False).result()
    assert stop - start >= 2.5
    assert run.rows("select max(seconds) as s from loop_blocks")[0]["s"] > 2
    assert "blocked-loop" not in [i.cause for i in summarize(run).insights]


def test_a_block_before_the_first_submission_is_no_insight(client: Client, tmp_path: Path) -> None:
    """Only the makespan counts."""
    with dask_strata.record(tmp_path, client=client) as run:
        start, stop = client.run_on_scheduler(block_the_loop, 1.5)
        assert client.submit(int, 1, pure=False).result() == 1
    assert run.rows("select max(seconds) as s from loop_blocks")[0]["s"] > stop - start - NEAR
    of_blocks = [i for i in summarize(run).insights if i.cause == "blocked-loop"]
    assert all(max(seconds(insight)) < stop - start - NEAR for insight in of_blocks)
    makespan = critical_path(run).makespan_seconds
    assert all((i.seconds or 0) <= makespan for i in summarize(run).insights)
