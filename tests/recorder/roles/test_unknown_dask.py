"""Workers with parts of unknown forms: an error costs its own rows, and nothing stays attached."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array
import distributed
import pytest
from distributed import Client, LocalCluster
from distributed.shuffle._core import ShuffleRun

import dask_strata
from tests.conftest import rows, wait_until


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a worker in this process, with a disk to spill to.

    The process also has the memory of other tests, which must not pause the worker.
    """
    limits = ("pause", "spill", "terminate")
    memory = {f"distributed.worker.memory.{name}": False for name in limits}
    with (
        dask.config.set({"array.rechunk.method": "p2p", **memory}),
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, memory_limit="16GB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as made,
    ):  # fmt: skip
        yield made


def worker_of(client: Client) -> Any:
    """Return the worker."""
    (worker,) = client.cluster.workers.values()
    return worker


def attached_to(worker: Any) -> list[str]:
    """Return the parts of a worker and of Dask that are not Dask's own."""
    own = {
        "log": type(worker.state.log) is deque,
        "shuffles": type(worker.extensions["shuffle"].shuffle_runs._runs) is set,
        "spills": not hasattr(worker.data._slow_uncached, "strata_notes"),
        "executions": not hasattr(distributed.worker._run_task, "__wrapped__"),
    }
    return [name for name, is_own in own.items() if not is_own]


class OddShuffle:
    """Stands for a shuffle of another version of Dask, which has no time of its start."""

    def heartbeat(self) -> dict[str, Any]:
        """Return Dask's counters."""
        return {"comm": {"written": 1, "read": 1}, "disk": {"written": 0, "read": 0}}


class FixedShuffle(OddShuffle):
    """Stands for a shuffle whose meter can be replaced only once."""

    id, run_id, start_time, transferred, _disk_buffer = "fixed", 1, 1.0, False, None

    def __init__(self) -> None:
        self._digest: Any = lambda name, value: None
        self._replaced = False

    @property
    def digest_metric(self) -> Any:
        """The meter."""
        return self._digest

    @digest_metric.setter
    def digest_metric(self, digest: Any) -> None:
        if self._replaced:
            raise AttributeError("the meter is fixed")
        self._digest, self._replaced = digest, True


def test_a_shuffle_with_other_counters(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metered values are on record, the missing ones are a loss, and it is left alone."""
    seen: dict[int, Any] = {}

    def heartbeat(self: Any) -> dict[str, Any]:
        seen[id(self)] = self
        return {"comm": {"written": 1, "read": 1}}

    monkeypatch.setattr(ShuffleRun, "heartbeat", heartbeat)
    active = worker_of(client).extensions["shuffle"].shuffle_runs
    with dask_strata.record(tmp_path, client=client, sample_interval="20ms") as run:
        array = dask.array.ones((400, 400), chunks=(400, 20)).rechunk((20, 400))
        assert array.sum().compute() == 160_000
        wait_until(lambda: not active._runs, what="the end of the shuffle")
    assert seen
    assert {type(each.digest_metric).__name__ for each in seen.values()} == {"method"}
    [shuffle] = rows(run, "from shuffle_samples where ended")
    assert (shuffle["sent_bytes"], shuffle["shards"] > 0) == (None, True)
    reasons = {row["reason"] for row in rows(run, "from losses")}
    assert "end of a P2P shuffle: KeyError: 'disk'" in reasons


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_shuffle_without_a_start(client: Client, tmp_path: Path, when: str) -> None:
    """It is a loss, wherever it began, and the rest of the worker is recorded."""
    worker = worker_of(client)
    manager, odd = worker.extensions["shuffle"].shuffle_runs, OddShuffle()
    if when == "before":
        manager._runs.add(odd)
    with dask_strata.record(tmp_path, client=client) as run:
        if when == "during":
            manager._runs.add(odd)
        assert client.submit(abs, -1).result() == 1
    assert attached_to(worker) == []
    assert manager._runs == {odd}
    assert len(rows(run, "from executions")) == 1
    [loss] = rows(run, "from losses")
    assert loss["reason"].startswith("start of a P2P shuffle: AttributeError")
    manager._runs.remove(odd)


def test_a_part_that_cannot_be_restored(client: Client, tmp_path: Path) -> None:
    """It is a loss, and all other parts are Dask's own again."""
    worker = worker_of(client)
    manager, fixed = worker.extensions["shuffle"].shuffle_runs, FixedShuffle()
    with dask_strata.record(tmp_path, client=client) as run:
        manager._runs.add(fixed)
        assert client.submit(abs, -1).result() == 1
    assert attached_to(worker) == []
    assert [row["reason"] for row in rows(run, "from losses")] == [
        "last of a P2P shuffle: AttributeError: the meter is fixed"
    ]
    manager._runs.remove(fixed)


def test_a_worker_that_cannot_be_recorded(client: Client, tmp_path: Path) -> None:
    """An error in the middle of the start leaves nothing behind."""

    class Extensions(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise TypeError("another form")

    worker = worker_of(client)
    worker.extensions = Extensions(worker.extensions)
    with dask_strata.record(tmp_path, client=client) as run:
        assert client.submit(abs, -1).result() == 1
        assert attached_to(worker) == []
    assert not rows(run, "from executions")


@pytest.mark.parametrize("odd", ["log", "event"])
def test_tasks_from_before_in_logs_of_other_forms(client: Client, tmp_path: Path, odd: str) -> None:
    """They are a loss, the rest is on record, and the recording ends."""
    scheduler = client.cluster.scheduler
    before = client.submit(abs, -1, key="before")
    assert before.result() == 1
    if odd == "log":
        scheduler.transition_log.append(("odd",))
    else:
        scheduler.log_event("scheduler", {"action": "update-graph", "metrics": None})
    with dask_strata.record(tmp_path, client=client) as run:
        assert client.submit(abs, -2, key="within").result() == 2
    assert run.state == "complete"
    assert [row["key"] for row in rows(run, "select key from tasks where started is not null")] == [
        "within"
    ]
    assert rows(run, "from present_tasks") == []
    [loss] = rows(run, "from losses")
    assert "Error: " in loss["reason"]
