"""Spill is what Dask wrote to disk and read back, in the same number of seconds everywhere."""

from __future__ import annotations

import html
import json
import random
import subprocess
import sys
import time
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from dask_strata.analysis.breakdown import breakdown
from dask_strata.report.page.page import make_page

pytestmark = pytest.mark.long

MB = 1_000_000


class SlowMemory(dict[Any, Any]):
    """Results in memory only, which take 50 ms to look up and to store."""

    def __getitem__(self, key: Any) -> Any:
        time.sleep(0.05)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        time.sleep(0.05)
        super().__setitem__(key, value)


def large(n: int) -> bytes:
    """Return 60 MB that cannot be compressed, so that Dask writes all of them."""
    return random.Random(n).randbytes(60 * MB)


def length(data: bytes) -> int:
    """Return the length."""
    return len(data)


def totals(dask_worker: Any) -> tuple[int, int]:
    """Return Dask's own count of results on disk, and their bytes."""
    return len(dask_worker.data.slow), dask_worker.data.spilled_total.disk


@pytest.fixture(scope="module")
def spilled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    """A run of a worker that keeps two of six results in memory, and how many were on disk."""
    folder = tmp_path_factory.mktemp("spilled")
    settings = {
        "distributed.worker.memory.target": 0.5,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="300MB", dashboard_address=":0",
            local_directory=folder,
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):  # fmt: skip
        made = [client.submit(large, n, key=f"large-{n}") for n in range(6)]
        assert client.gather([client.submit(length, m) for m in made]) == [60 * MB] * 6
        [(n, _)] = client.run(totals).values()
    return run, n


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a worker whose memory is slow, and which has no disk."""
    folder = tmp_path_factory.mktemp("slow")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, data=SlowMemory,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):  # fmt: skip
        made = [client.submit(int, n, key=f"made-{n}") for n in range(5)]
        client.submit(sum, made, key="sum-1").result()
    return run


def shown(run: Run) -> dict[str, Any]:
    """Return the summary as `dask-strata show` prints it in JSON."""
    command = [sys.executable, "-m", "dask_strata", "show", str(run.path), "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_spill_is_the_same_everywhere(spilled: tuple[Run, int]) -> None:
    """Screen, page, insight and attempts have what the table `spills` has."""
    run, n_on_disk = spilled
    [row] = run.rows("""
        select count(*) filter (action = 'spill') as written, sum(seconds) as seconds,
               count(distinct key) filter (action = 'spill' and disk_bytes >= 60000000) as large
        from spills
    """)
    # The worker keeps 150 MB in memory, which are two of the six results.
    assert row["large"] >= n_on_disk >= 4
    facts = shown(run)
    # One thread: each spill is between two functions, but for the errors of Dask's clocks.
    waited = facts["breakdown"]["seconds"]["spill"]
    assert waited == pytest.approx(row["seconds"], rel=0.3)
    assert waited <= row["seconds"] + 1e-6
    page = html.unescape(make_page(run))
    for insight in facts["insights"]:  # spilling may take too little time for one
        assert insight["text"] in page
        if insight["cause"] == "spill":
            assert insight["seconds"] <= row["seconds"] + 1e-6
    # At least the spill of the last result is on the path.
    assert row["seconds"] * 0.1 <= facts["path_seconds"]["spill"] <= row["seconds"] + 1e-6
    [of_attempts] = run.rows("select sum(disk_seconds) as s from attempts")
    assert row["seconds"] * 0.7 <= of_attempts["s"] <= row["seconds"] + 1e-6


def test_slow_memory_is_no_spill(slow: Run) -> None:
    """Dask calls slow look-ups disk-read; without a disk nothing is spill anywhere."""
    labelled = slow.rows("select sum(seconds) as s from phases where action like 'disk%'")
    assert labelled[0]["s"] > 0.2
    assert slow.rows("select count(*) as n from spills")[0]["n"] == 0
    facts = shown(slow)
    assert facts["breakdown"]["seconds"]["spill"] == 0
    assert "spill" not in facts["path_seconds"]
    assert facts["path_seconds"]["deserialize"] > 0.2
    assert not [f for f in facts["findings"] if "spill" in f["text"]]
    [of_attempts] = slow.rows(
        "select count(*) as n, list(distinct disk_seconds) as s from attempts"
    )
    assert of_attempts["n"]
    assert of_attempts["s"] == [0]
    assert "No result was spilled." in make_page(slow)
    assert sum(breakdown(slow).seconds.values()) == pytest.approx(breakdown(slow).total_seconds)
