"""A worker is lost with results: attempts of others that needed these are still those of others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import rows, wait_until


class Slow:
    """A result whose transfer does not end while a file is there; it notes that it began."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make it again, late."""
        while Path(self.marker).exists():
            Path(self.marker).with_suffix(".begun").touch()
            time.sleep(0.01)
        return Slow, (self.marker,)


def while_exists(marker: str) -> None:
    """Run until a file is removed."""
    while Path(marker).exists():
        time.sleep(0.01)


def test_an_attempt_that_lost_its_input_keeps_its_worker(runs: Path, tmp_path: Path) -> None:
    """Dask ends it by the removal of the worker with the input; the task was on another one."""
    marker = tmp_path / "transfer.waits"
    marker.touch()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        pids = client.run(os.getpid)
        lost, other = pids
        first = {"workers": [lost], "allow_other_workers": True}
        made = client.submit(Slow, str(marker), key="input", **first)
        wait_until(lambda: made.status == "finished")
        needs = client.submit(type, made, key="needs", workers=[other])
        here = client.submit(while_exists, str(marker), key="here", **first)
        wait_until(marker.with_suffix(".begun").exists)
        on = cluster.scheduler.tasks
        wait_until(lambda: "here" in on and on["here"].processing_on)
        assert on["here"].processing_on.address == lost
        assert on["needs"].processing_on.address == other
        os.kill(pids[lost], signal.SIGKILL)
        wait_until(lambda: lost not in cluster.scheduler.workers)
        marker.unlink()
        assert needs.result() is Slow
        here.result()
    found = rows(run, "select key, worker from attempts where outcome = 'lost' order by key")
    assert found == [{"key": "here", "worker": lost}]
    needed = rows(run, "select worker, outcome from attempts where key = 'needs' order by attempt")
    assert [row["worker"] for row in needed] == [other, other]
    assert needed[-1]["outcome"] == "memory"
