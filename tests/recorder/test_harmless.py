"""Dask behaves with a preloaded recorder as without it, by the measure of Dask's own tests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, Worker
from distributed.client import _global_clients
from distributed.core import Status
from distributed.utils_test import captured_logger

from tests.conftest import assert_whole, rows, runs_in, wait_until


@pytest.fixture
def _preloaded(runs: Path) -> Iterator[None]:
    """Preload the recorder into each scheduler and client of this process."""
    preload = {
        "distributed.scheduler.preload": ["dask_strata"],
        "distributed.client.preload": ["dask_strata"],
        "dask-strata.runs": str(runs),
    }
    with dask.config.set(preload):
        yield


def recorder_threads() -> list[str]:
    """Return the names of the recorder's threads in this process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("dask-strata")]


@pytest.mark.usefixtures("_preloaded")
def test_a_client_closes_with_its_cluster_before_the_event_loop(runs: Path) -> None:
    """A client that nobody closes is closed, and not registered, when its cluster has closed."""

    async def main() -> Client:
        async with LocalCluster(
            n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
        ) as cluster:
            client = cluster.get_client()
            assert await client.submit(pow, 2, 3) == 8
        return client

    client = asyncio.run(main())
    assert client.status == "closed"
    assert client not in _global_clients.values()
    wait_until(lambda: not recorder_threads(), what="the end of all recorders")
    (run,) = runs_in(runs)
    assert_whole(run)
    assert {r["role"] for r in rows(run, "from processes where exit_reason = 'closed'")} == {
        "client",
        "scheduler",
        "worker",
    }


NEVER_CLOSED = """
    import asyncio, gc, json, logging, threading, time, weakref

    from distributed import Client, Nanny, Scheduler, Worker

    logging.disable()

    async def main():
        scheduler = await Scheduler(port=0, dashboard_address=":0")
        worker = await Worker(scheduler.address)
        nanny = await Nanny(scheduler.address, nthreads=1)
        client = await Client(scheduler.address, asynchronous=True)
        assert await client.submit(pow, 2, 3, workers=worker.address) == 8
        return [weakref.ref(each) for each in (scheduler, worker, nanny, client)]

    def recorder_threads():
        return [t.name for t in threading.enumerate() if t.name.startswith("dask-strata")]

    if __name__ == "__main__":
        servers = asyncio.run(main())
        until = time.monotonic() + 30
        while recorder_threads() and time.monotonic() < until:
            time.sleep(0.05)
        gc.collect()
        alive = [type(server()).__name__ for server in servers if server() is not None]
        print(json.dumps({"threads": recorder_threads(), "alive": alive}))
"""


@pytest.mark.long
def test_a_recorder_ends_with_its_event_loop(script: Callable[..., Path], runs: Path) -> None:
    """Servers and clients that are never closed end with their loop; so do their recorders."""
    preload = {
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
        "DASK_DISTRIBUTED__CLIENT__PRELOAD": "['dask_strata']",
        "DASK_DASK_STRATA__RUNS": str(runs),
    }
    plain, recorded = (
        json.loads(
            subprocess.run(
                [sys.executable, script(NEVER_CLOSED)],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=True,
                timeout=90,
            ).stdout
        )
        for environment in ({}, preload)
    )
    assert recorded == plain == {"threads": [], "alive": plain["alive"]}
    (run,) = runs_in(runs)
    found = rows(
        run,
        "select p.role, p.exit_reason from processes p join processes s using (pid) "
        "where s.role = 'scheduler' order by p.role",
    )
    # Dask's worker closes when the end of the loop cancels its tasks.
    assert [(r["role"], r["exit_reason"]) for r in found] == [
        ("client", "event loop closed"),
        ("nanny", "event loop closed"),
        ("scheduler", "event loop closed"),
        ("worker", "closed"),
    ]
    assert rows(run, "from tasks where state = 'memory'")


@pytest.mark.long
@pytest.mark.usefixtures("_preloaded")
def test_a_closing_nanny_requests_nothing_from_a_closed_scheduler(tmp_path: Path) -> None:
    """When the scheduler closes, a nanny that sees a new worker does not connect to it."""

    async def main() -> str:
        async with Scheduler(port=0, dashboard_address=":0") as scheduler:
            nannies = [Nanny(scheduler.address, nthreads=1, name=name) for name in "ab"]
            await asyncio.gather(*nannies)
            with captured_logger("distributed.comm", level=logging.DEBUG) as log:
                await scheduler.close()
                for nanny in nannies:
                    while nanny.status is Status.running:  # noqa: ASYNC110  Dask has no event
                        await asyncio.sleep(0.01)
                    # As the next sample would, which is too late for the test.
                    for recorder in vars(nanny)["_dask_strata_recorders"].values():
                        recorder.on_worker()
                await asyncio.gather(*(nanny.finished() for nanny in nannies))
            return log.getvalue()

    seldom = {"dask-strata.sample-interval": "30s", "temporary-directory": str(tmp_path)}
    with dask.config.set(seldom):
        log = asyncio.run(main())
    assert "retry" not in log


async def turns_of_first_heartbeat() -> int:
    """Return for how many turns of the event loop a new worker's first heartbeat lasts."""
    async with (
        Scheduler(port=0, dashboard_address=":0") as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
        Worker(scheduler.address) as worker,
    ):
        # On a busy machine, the worker's own one would be the first.
        worker.periodic_callbacks["heartbeat"].stop()
        assert await client.submit(pow, 2, 3) == 8
        turns, heartbeat = 0, asyncio.create_task(worker.heartbeat())
        while not heartbeat.done():
            turns += 1
            await asyncio.sleep(0)
        return turns


def test_a_heartbeat_takes_as_many_turns_as_without_a_recorder(request: Any) -> None:
    """The recorder opens no connection of the worker that its first heartbeat would find open."""
    plain = min(asyncio.run(turns_of_first_heartbeat()) for _ in range(3))
    request.getfixturevalue("_preloaded")
    recorded = min(asyncio.run(turns_of_first_heartbeat()) for _ in range(3))
    assert recorded == plain
    wait_until(lambda: not recorder_threads(), what="the end of all recorders")


OTHER_PRELOAD = """
    def dask_setup(client):
        pass
"""


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
@pytest.mark.usefixtures("_preloaded")
def test_own_preload_lines_have_the_level_debug(
    script: Callable[..., Path], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Dask's lines on the preload of dask-strata are for debugging; those on others stay."""
    other = str(script(OTHER_PRELOAD, "other_preload.py"))

    async def main() -> None:
        with dask.config.set({"distributed.client.preload": ["dask_strata", other]}):
            async with (
                Scheduler(port=0, dashboard_address=":0") as scheduler,
                Client(scheduler.address, asynchronous=True),
            ):
                pass

    with caplog.at_level(level, logger="distributed.preloading"):
        asyncio.run(main())
    found = [r for r in caplog.records if r.name == "distributed.preloading"]
    own = [r for r in found if r.args == ("dask_strata",)]
    assert {r.levelno for r in own} == ({logging.DEBUG} if level == logging.DEBUG else set())
    assert {(r.args, r.levelno) for r in found if r not in own} == {((other,), logging.INFO)}
    wait_until(lambda: not recorder_threads(), what="the end of all recorders")
