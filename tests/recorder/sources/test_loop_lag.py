"""Blocks of event loops count once, compared with the times of the code that blocked them."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from tornado.ioloop import IOLoop

import dask_strata
from dask_strata import Run
from dask_strata.recorder.sampling.tasks import TaskSampler
from dask_strata.recorder.sources.loop_lag import LoopMonitor
from tests.conftest import assert_whole, rows

pytestmark = pytest.mark.long

SAMPLING = 0.2

#: Start and stop of a block, and the CPU time of the process meanwhile.
Times = tuple[float, float, float]


async def block_the_loop(seconds: float, **_: Any) -> Times:
    """Block the event loop on which this runs; return when."""
    await asyncio.sleep(0)
    start, cpu = time.time(), time.process_time()
    time.sleep(seconds)  # noqa: ASYNC251  it is to block the loop
    return start, time.time(), time.process_time() - cpu


def hold_the_gil(n: int) -> Times:
    """Hold the GIL in one call of a C function."""
    start, cpu = time.time(), time.process_time()
    sum(range(n))
    return start, time.time(), time.process_time() - cpu


def hold_it_in_parts(parts: int) -> Times:
    """Hold the GIL in several calls of a regular expression, with Python between them."""
    start, cpu = time.time(), time.process_time()
    for _ in range(parts):
        re.match("(a+)+$", "a" * 24 + "b")
    return start, time.time(), time.process_time() - cpu


def stop_the_process(seconds: float) -> Times:
    """Stop this process, and continue it from another one."""
    start, cpu = time.time(), time.process_time()
    if os.fork() == 0:
        time.sleep(seconds)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.wait()
    return start, time.time(), time.process_time() - cpu


@dataclass(frozen=True)
class Blocked:
    """A run, and when each loop was blocked according to the code that blocked it."""

    run: Run
    times: dict[str, Times]

    def during(self, name: str, table: str, *, role: str) -> list[dict[str, Any]]:
        """Return the rows of a process that overlap with the time of a block."""
        a, b, _ = self.times[name]
        b += 2 * SAMPLING
        first, last = ("start", "stop") if table == "loop_blocks" else ("time", "time")
        return rows(
            self.run,
            f"select t.*, epoch(t.{first}) as a, epoch(t.{last}) as b "
            f"from {table} t join processes p using (process) where p.role = '{role}' "
            f"and epoch(t.{last}) > {a} and epoch(t.{first}) < {b} order by a",
        )


def quiet() -> None:
    """Let samples without a delay follow, so that the times of two blocks are apart."""
    time.sleep(3 * SAMPLING)


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Blocked:
    """Record a cluster whose loops are blocked in turn."""
    runs: Path = tmp_path_factory.mktemp("runs")
    with (
        dask.config.set({"dask-strata.sample-interval": f"{SAMPLING}s"}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        times = {}
        client.run(block_the_loop, 0)  # the worker imports this module on its loop
        quiet()
        times["scheduler"] = client.run_on_scheduler(block_the_loop, 1.5)
        quiet()
        [times["worker"]] = client.run(block_the_loop, 1.2).values()
        quiet()
        times["GIL"] = client.submit(hold_the_gil, 60_000_000).result()
        quiet()
        times["parts"] = client.submit(hold_it_in_parts, 2).result()
        quiet()
        times["stopped"] = client.submit(stop_the_process, 1.2).result()
        quiet()
    assert_whole(run)
    return Blocked(run, times)


CASES = {
    "scheduler": "scheduler",
    "worker": "worker",
    "GIL": "worker",
    "parts": "worker",
    "stopped": "worker",
}


@pytest.mark.parametrize("name", CASES)
def test_a_block_counts_once(blocked: Blocked, name: str) -> None:
    """The seconds on record are those in which the loop was blocked."""
    role, (start, stop, _) = CASES[name], blocked.times[name]
    blocks = blocked.during(name, "loop_blocks", role=role)
    during = sum(max(0, min(b["b"], stop) - max(b["a"], start)) for b in blocks)
    assert during == pytest.approx(stop - start, rel=0.2, abs=SAMPLING)
    samples = blocked.during(name, f"{role}_samples", role=role)
    lags = [s["loop_lag_seconds"] for s in samples if s["loop_lag_seconds"] is not None]
    if name != "parts":
        assert max(lags) == pytest.approx(stop - start, rel=0.2, abs=SAMPLING)
    assert sum(t for t in lags if t > 0.1) <= sum(b["seconds"] for b in blocks) + 0.001
    assert all(first["stop"] <= second["start"] for first, second in itertools.pairwise(blocks))
    assert all(b["b"] - b["a"] == pytest.approx(b["seconds"], abs=1e-5) for b in blocks)


@pytest.mark.parametrize(("name", "frozen"), [("worker", 0), ("GIL", 1), ("stopped", 1)])
def test_the_kind_of_a_block(blocked: Blocked, name: str, frozen: int) -> None:
    """A loop that is blocked, the GIL, and a process that does not run differ in the record."""
    cpu = blocked.times[name][2]
    blocks = blocked.during(name, "loop_blocks", role="worker")
    seconds = sum(b["seconds"] for b in blocks)
    assert sum(b["frozen_seconds"] for b in blocks) / seconds == pytest.approx(frozen, abs=0.35)
    assert sum(b["cpu_seconds"] for b in blocks) == pytest.approx(cpu, rel=0.3, abs=0.3)


def test_cpu_time_of_a_look_is_of_the_next_block() -> None:
    """The look that samples tasks may be held up: the block that shows it has the CPU time, too."""
    used: list[float] = []

    class Long(TaskSampler):
        def look(self, now: int, due: int, looked: int) -> None:
            if not used:
                before = time.process_time()
                sum(range(40_000_000))
                used.append(time.process_time() - before)

    async def blocks() -> list[float]:
        server = SimpleNamespace(loop=IOLoop.current(), _last_tick=time.time())
        monitor = LoopMonitor(server, "worker-1", sampler=Long("tcp://w:1", list))
        monitor.start()
        found: list[float] = []
        while not found:
            server._last_tick = time.time()
            await asyncio.sleep(0.02)
            for batch in monitor.rows():
                found += batch.columns["cpu_seconds"]
        monitor.remove()
        monitor.finish()
        return found

    assert sum(asyncio.run(blocks())) >= 0.8 * used[0]


def test_no_block_ends_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after the wall clock was set back by an hour, a block ends after it starts."""
    set_back = 0
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - set_back)

    async def blocks() -> list[dict[str, Any]]:
        nonlocal set_back
        loop = IOLoop.current()
        monitor = LoopMonitor(SimpleNamespace(loop=loop), "worker-1")
        monitor.start()
        found: list[dict[str, Any]] = []
        for hours in (0, 1):
            set_back = hours * 3_600_000_000_000
            while len(found) <= hours:
                time.sleep(0.3)  # noqa: ASYNC251  it is to block the loop
                await asyncio.sleep(0.1)
                for batch in monitor.rows():
                    columns = batch.columns
                    found += [
                        {name: columns[name][i] for name in ("start", "stop", "seconds")}
                        for i in range(batch.n)
                    ]
        monitor.remove()
        monitor.finish()
        return found

    for block in asyncio.run(blocks()):
        assert block["stop"] > block["start"]
