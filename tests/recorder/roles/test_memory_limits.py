"""Memory of workers against the limits of their own process, by Dask and by psutil."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from dask_strata.analysis.measured.memory import memory_lines, workers_memory
from tests.conftest import rows

_SHARES = {"target": 0.4, "spill": False, "pause": 0.5, "terminate": 0.97}
_LIMIT, _HELD = 800 << 20, 400 << 20


def hold(nbytes: int, seconds: float) -> None:
    """Use memory for some time."""
    held = bytearray(nbytes)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(seconds)


class Truth:
    """The limits of a worker and of its nanny as Dask has them, and its memory by psutil."""

    def __init__(self, client: Client) -> None:
        [(self.worker, self.fractions)] = client.run(
            lambda dask_worker: {
                name: getattr(dask_worker.memory_manager, f"memory_{name}_fraction")
                for name in ("target", "spill", "pause")
            }
        ).items()
        [self.killed_above] = client.run(
            lambda dask_worker: (
                dask_worker.memory_manager.memory_terminate_fraction
                * dask_worker.memory_manager.memory_limit
            ),
            nanny=True,
        ).values()
        [self.limit] = client.run(
            lambda dask_worker: dask_worker.memory_manager.memory_limit
        ).values()
        [pid] = client.run(lambda: __import__("os").getpid()).values()
        self.process = psutil.Process(pid)
        self.peak, self.above = 0, 0.0

    def watch(self, future: Any, limit: float) -> None:
        """Sample the memory every 20 ms until a task is done, and until the memory is free."""
        last = time.monotonic()
        while not future.done() or self.process.memory_info().rss > limit:
            time.sleep(0.02)
            now, rss = time.monotonic(), self.process.memory_info().rss
            self.peak = max(self.peak, rss)
            self.above += now - last if rss > limit else 0
            last = now


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Truth]:
    """A worker that holds 400 MiB of its 800 MiB for 1.5 s, which is above `pause`."""
    shares = {f"distributed.worker.memory.{name}": share for name, share in _SHARES.items()}
    with (
        dask.config.set(shares),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address="", memory_limit=_LIMIT
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(runs=tmp_path_factory.mktemp("runs"), sample_interval=0.1) as run,
    ):
        truth = Truth(client)
        truth.watch(client.submit(hold, _HELD, 1.5), 0.5 * _LIMIT)
        client.submit(time.sleep, 0.5).result()  # for a sample below the limit
    return run, truth


@pytest.mark.long
def test_limits_are_those_of_the_workers_process(held: Any) -> None:
    """What is off is null; the nanny's limit is the one that the nanny has."""
    run, truth = held
    [row] = rows(run, "from memory_limits")
    assert truth.fractions == {"target": 0.4, "spill": False, "pause": 0.5}
    assert row["worker"] == truth.worker
    assert row["limit_bytes"] == truth.limit == _LIMIT
    assert row["target_bytes"] == pytest.approx(0.4 * _LIMIT, abs=1)
    assert row["spill_bytes"] is None
    assert row["pause_bytes"] == pytest.approx(0.5 * _LIMIT, abs=1)
    assert row["terminate_bytes"] == pytest.approx(truth.killed_above, abs=1)


@pytest.mark.long
def test_peak_and_time_above_are_those_of_the_process(held: Any) -> None:
    """By the memory that psutil saw from outside, every 20 ms."""
    run, truth = held
    [row] = rows(run, "from worker_memory")
    assert row["peak_bytes"] == pytest.approx(truth.peak, rel=0.05)
    assert row["peak_bytes"] > _HELD
    assert row["above_pause_seconds"] == pytest.approx(truth.above, abs=0.5)
    assert row["above_pause_seconds"] > 1
    assert row["above_spill_seconds"] is None
    assert row["above_target_seconds"] == row["above_terminate_seconds"] == 0


@pytest.mark.long
def test_views_name_the_limit_that_was_passed(held: Any) -> None:
    """The sentence of the first screen, and the line of the page."""
    run, truth = held
    found = workers_memory(run)
    assert found is not None
    assert [(each.limit, each.n_workers) for each in found.above] == [("pause", 1)]
    assert "1 of 1 worker above the pause limit for" in found.sentence
    [line] = memory_lines(run)
    assert line.limits.keys() == {"target", "pause", "terminate"}
    assert max(nbytes for _, nbytes in line.points) == pytest.approx(truth.peak, rel=0.05)
    assert all(0 <= at <= 1 for at, _ in line.points)


def test_a_worker_without_a_limit_has_no_limits(tmp_path: Path) -> None:
    """Unknown and off are null; no GPU is no row."""
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="", memory_limit=None)
    with cluster, Client(cluster) as client, dask_strata.record(runs=tmp_path) as run:
        client.submit(time.sleep, 0).result()
    [row] = rows(run, "from worker_memory")
    limits = ("limit", "target", "spill", "pause", "terminate")
    assert [row[f"{name}_bytes"] for name in limits] == [None] * 5
    assert [row[f"above_{name}_seconds"] for name in limits[1:]] == [None] * 4
    assert row["peak_bytes"] > 0
    found = workers_memory(run)
    assert found is not None
    assert (found.limit_bytes, found.above) == (None, ())
    assert rows(run, "from gpu_samples") == rows(run, "from gpu_attempts") == []


def test_gpu_values_are_those_of_dasks_monitor(tmp_path: Path) -> None:
    """Read as Dask's monitor has them where NVML answers; here its columns are filled by hand."""
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client:
        [worker] = cluster.workers.values()
        monitor = worker.monitor
        monitor.quantities["gpu_utilization"] = deque([35])
        monitor.quantities["gpu_memory_used"] = deque([3 << 30])
        monitor.quantities["gpu-memory-total"] = deque([16 << 30])
        with dask_strata.record(runs=tmp_path, sample_interval=0.1) as run:
            client.submit(time.sleep, 1).result()
        address = worker.address
    found = rows(
        run, "select distinct worker, utilization, used_bytes, total_bytes from gpu_samples"
    )
    assert found == [
        {"worker": address, "utilization": 35, "used_bytes": 3 << 30, "total_bytes": 16 << 30}
    ]
    [attempt] = rows(run, "select * from gpu_attempts")
    assert attempt["n_samples"] >= 2
    assert (attempt["utilization"], attempt["peak_bytes"]) == (35, 3 << 30)
