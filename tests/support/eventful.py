"""A workflow in which much happens: for tests that compare ways of reading one record."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import pandas as pd
from distributed import Client, Event, LocalCluster

import dask_strata
from tests.conftest import wait_until


def fails_first(flag: str) -> str:
    """Fail once, then return."""
    path = Path(flag)
    if not path.exists():
        path.write_text("failed")
        raise RuntimeError("the first attempt fails")
    return path.read_text()


def opens(path: str) -> int:
    """Read a file, and report a metric."""
    dask_strata.count("files", 1)
    with open(path, "rb") as file:  # noqa: PTH123  what tasks do
        return len(file.read())


def wait_for(name: str) -> str:
    """Wait for an event."""
    Event(name).wait(timeout="60s")
    return name


def plus(x: Any, y: Any) -> Any:
    """Return the sum."""
    return x + y


def work(client: Client, cluster: LocalCluster, folder: Path) -> None:
    """Retries, failures, files, a shuffle, a lost worker, released and repeated keys."""
    path = folder / "data"
    path.write_bytes(b"0" * 1000)
    sums = client.map(plus, range(40), range(40), key=[("plus", i) for i in range(40)])
    total = client.submit(sum, sums, key="total")
    retried = client.submit(fails_first, str(folder / "flag"), retries=2, key="retried")
    failed = client.submit(fails_first, str(folder / "none" / "x"), key="failed")
    read = client.map(opens, [str(path)] * 5, pure=False)
    scattered = client.scatter({"a": 1, "b": 2})
    assert total.result() == sum(2 * i for i in range(40))
    assert retried.result() == "failed"
    assert failed.exception() is not None
    assert client.gather(read) == [1000] * 5
    client.replicate([scattered["a"]])
    for _ in range(2):  # a key that was forgotten is submitted again
        again = client.submit(plus, 1, 2, key="again")
        assert again.result() == 3
        again.release()
        wait_until(lambda: "again" not in cluster.scheduler.tasks, what="the end of the key again")
    frame = pd.DataFrame({"x": range(200), "y": [i % 7 for i in range(200)]})
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        shuffled = dask.dataframe.from_pandas(frame, npartitions=5).shuffle("y")
        assert len(shuffled.compute()) == 200
    waiting = client.submit(wait_for, "go", key="waiting")
    wait_until(lambda: waiting.key in processing(cluster), what="a task under way")
    worker = processing(cluster)[waiting.key]
    os.kill(cluster.workers[worker].pid, signal.SIGKILL)  # its results are computed again
    wait_until(
        lambda: (
            processing(cluster).get(waiting.key) not in {None, worker}
            or len(cluster.scheduler.workers) == 2
        ),
        what="another worker",
    )
    Event("go").set()
    assert waiting.result() == "go"
    assert client.submit(sum, sums, key="total-2").result() == total.result()


def processing(cluster: LocalCluster) -> dict[Any, Any]:
    """Return the name of the worker that each task is processed by."""
    return {
        key: ts.processing_on.name
        for key, ts in cluster.scheduler.tasks.items()
        if ts.processing_on is not None
    }


def record_eventful(folder: Path) -> Path:
    """Record the workflow in a folder; return a copy of the run, as segments."""
    (folder / "work").mkdir()
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        work(client, cluster, folder / "work")
    # Nannies that close with their cluster write last rows: the copy is of one state.
    return Path(shutil.copytree(run.path, folder / "copy"))
