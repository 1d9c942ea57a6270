"""A snapshot has the scheduler's tasks and workers, and taking it leaves no trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster

import dask_strata
from dask_strata.errors import StrataError, UsageError
from dask_strata.snapshot import LiveTask, LiveWorker, Snapshot
from tests.conftest import wait_until

PLAIN = (str, int, float, type(None))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes, one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the cluster."""
    with Client(cluster) as made:
        yield made


def hold(began: str, go_on: str, *_: Any) -> str:
    """Set one event and wait for another."""
    Event(began).set()
    assert Event(go_on).wait(60)
    return "x" * 1000


def after(*results: Any) -> int:
    """Return the number of arguments."""
    return len(results)


def fail() -> None:
    """Fail."""
    raise ValueError("no muons for you")


def by_key(snapshot: Snapshot) -> dict[str, LiveTask]:
    """Return the tasks by their keys."""
    return {task.key: task for task in snapshot.tasks}


def state_of_the_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    """Return the state that taking a snapshot could change."""
    return {
        "transitions": dask_scheduler.transition_counter,
        "tasks": {str(key): (ts.state, ts.run_id) for key, ts in dask_scheduler.tasks.items()},
        "plugins": sorted(dask_scheduler.plugins),
        "handlers": sorted(dask_scheduler.handlers),
        "attributes": sorted(vars(dask_scheduler)),
        "events": sorted(map(str, dask_scheduler.get_events())),
        "metadata": repr(dask_scheduler.task_metadata),
        "extensions": sorted(dask_scheduler.extensions),
        "modules": "dask_strata.snapshot" in __import__("sys").modules,
    }


def test_tasks_and_workers_while_tasks_run(client: Client) -> None:
    """Running, waiting and finished tasks have their states, workers and sizes."""
    done = client.submit(len, "abc", key=("done", 3))
    assert done.result() == 3
    with dask.annotate(label="jets", folder={1, 2}):
        held = client.submit(hold, "held began", "held goes on", key="held-1", retries=2)
    waiting = client.submit(after, held, done, key="after-1")
    assert Event("held began", client=client).wait(60)

    snapshot = dask_strata.live(client)

    tasks = by_key(snapshot)
    assert {key: task.state for key, task in tasks.items()} == {
        "('done', 3)": "memory",
        "held-1": "processing",
        "after-1": "waiting",
    }
    assert dict(snapshot.states) == {"memory": 1, "processing": 1, "waiting": 1}
    finished, running = tasks["('done', 3)"], tasks["held-1"]
    assert (finished.key_type, finished.typename, finished.n_replicas) == ("tuple", "int", 1)
    assert finished.nbytes == sys.getsizeof(3)
    assert (running.key_type, running.prefix, running.group) == ("str", "held", "held")
    assert (running.n_dependencies, running.n_dependents, running.retries) == (0, 1, 2)
    assert (running.nbytes, running.typename, running.n_replicas) == (None, None, 0)
    assert json.loads(running.annotations or "")["label"] == "jets"
    assert json.loads(running.annotations or "")["folder"] == "set"
    assert tasks["after-1"].n_dependencies == 2

    workers = {worker.address: worker for worker in snapshot.workers}
    assert set(workers) == set(client.nthreads())
    on = workers[running.worker or ""]
    assert (on.processing, on.n_processing) == (("held-1",), 1)
    assert (on.nthreads, on.status) == (1, "running")
    assert on.memory_limit_bytes
    assert on.last_seen_seconds >= 0
    assert on.occupancy_seconds > 0
    assert sum(worker.in_memory for worker in snapshot.workers) == 1
    assert sum(worker.managed_bytes for worker in snapshot.workers) == finished.nbytes
    assert {worker.name for worker in snapshot.workers} == {"0", "1"}
    wait_until(
        lambda: [k for w in dask_strata.live(client).workers for k in w.executing] == ["held-1"],
        what="the worker to report what it executes",
    )

    Event("held goes on", client=client).set()
    assert waiting.result() == 2
    assert set(dask_strata.live(client).states) == {"memory"}


def test_clients_and_who_has_what(cluster: LocalCluster, client: Client) -> None:
    """Clients have name, address, time and keys; replicas are Dask's own ``who_has``."""
    before = time.time()
    with Client(cluster, name="analysis", set_as_default=False) as other:
        mine = client.submit(len, "abc", key=("mine", 1))
        both = other.scatter(b"x" * 5000, broadcast=True)
        assert mine.result() == 3
        wait_until(lambda: len(dask_strata.live(client).replicas) == 3, what="all replicas")

        snapshot = dask_strata.live(client)

        clients = {c.client: c for c in snapshot.clients}
        # Tasks of other tests have made clients in workers.
        assert {c.client for c in snapshot.clients if c.name != "worker"} == {client.id, other.id}
        assert (clients[other.id].name, clients[client.id].name) == ("analysis", None)
        assert clients[client.id].wanted == ("('mine', 1)",)
        assert clients[other.id].wanted == (both.key,)
        assert clients[other.id].n_wanted == 1
        assert before <= clients[other.id].connected.timestamp() <= time.time()
        assert clients[client.id].connected < clients[other.id].connected
        assert clients[other.id].address == other.scheduler_comm.comm.local_address
        assert clients[other.id].last_seen_seconds >= 0

        who_has = {str(key): set(workers) for key, workers in client.who_has().items()}
        assert len(who_has[both.key]) == 2
        found: dict[str, set[str]] = {}
        for replica in snapshot.replicas:
            found.setdefault(replica.key, set()).add(replica.worker)
        assert found == who_has
        sizes = {r.key: r.nbytes for r in snapshot.replicas}
        assert sizes == {str(key): n for key, n in client.nbytes(summary=False).items()}
        assert {r.key_type for r in snapshot.replicas} == {"tuple", "str"}
        assert snapshot.n_replicas == 3
        with pytest.warns(UserWarning, match="Only the first 2 of 3 replicas"):
            cut = dask_strata.live(client, limit=2)
        assert (len(cut.replicas), cut.n_replicas) == (2, 3)
    wait_until(
        lambda: other.id not in {c.client for c in dask_strata.live(client).clients},
        what="the other client to leave",
    )


def test_released_tasks_are_forgotten(client: Client) -> None:
    """A released task is in no snapshot, and its result on no worker."""
    future = client.submit(after, 1, key="wanted")
    assert future.result() == 1
    assert by_key(dask_strata.live(client)).keys() == {"wanted"}
    future.release()
    wait_until(lambda: not dask_strata.live(client).tasks, what="the scheduler to forget")
    snapshot = dask_strata.live(client)
    assert (snapshot.n_tasks, dict(snapshot.states), snapshot.cut) == (0, {}, False)
    assert [worker.in_memory for worker in snapshot.workers] == [0, 0]


def test_failed_tasks_and_their_dependents_have_the_exception(client: Client) -> None:
    """Tasks in the state erred have the exception and the key of the task to blame."""
    failing = client.submit(fail, key="failing")
    failed_for_it = client.submit(after, failing, key="failed for it")
    assert isinstance(failed_for_it.exception(), ValueError)
    tasks = by_key(dask_strata.live(client))
    assert {task.state for task in tasks.values()} == {"erred"}
    assert {task.blame for task in tasks.values()} == {"failing"}
    assert all("no muons for you" in (task.exception or "") for task in tasks.values())


def test_a_snapshot_changes_nothing_on_the_scheduler(client: Client) -> None:
    """The scheduler's tasks, counters, plugins and attributes are as before; nothing is loaded."""
    held = client.submit(hold, "quiet began", "quiet goes on", key="quiet")
    assert Event("quiet began", client=client).wait(60)
    before = client.run_on_scheduler(state_of_the_scheduler)
    dask_strata.live(client)
    assert client.run_on_scheduler(state_of_the_scheduler) == before
    Event("quiet goes on", client=client).set()
    held.result()


def test_a_snapshot_is_bounded_with_a_warning(client: Client) -> None:
    """Tasks beyond the limit are only counted; a warning and the snapshot report this."""
    futures = client.map(after, range(30), key=[f"many-{i}" for i in range(30)])
    client.gather(futures)
    with pytest.warns(UserWarning, match="Only the first 10 of 30 tasks") as warned:
        snapshot = dask_strata.live(client, limit=10)
    assert warned[0].filename == __file__
    assert (len(snapshot.tasks), snapshot.n_tasks, snapshot.cut) == (10, 30, True)
    assert "the first 10 of 30 tasks (30 memory)" in repr(snapshot)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not dask_strata.live(client, limit=30).cut
    with pytest.raises(UsageError, match="negative"):
        dask_strata.live(client, limit=-1)


def test_keys_of_workers_are_within_the_limit_too(client: Client) -> None:
    """The limit bounds the listed keys that workers process, but not their counts."""
    blocked = [client.submit(hold, "one began", "all go on", i, key=f"h-{i}") for i in range(2)]
    address = next(iter(client.nthreads()))
    more = [client.submit(after, i, key=f"m-{i}", workers=address) for i in range(20)]
    wait_until(lambda: dask_strata.live(client).states == {"processing": 22}, what="all to begin")
    with pytest.warns(UserWarning, match="Only the first 5"):
        snapshot = dask_strata.live(client, limit=5)
    assert sum(len(worker.processing) for worker in snapshot.workers) == 5
    assert sum(worker.n_processing for worker in snapshot.workers) == 22
    Event("all go on", client=client).set()
    client.gather([*blocked, *more])


def test_values_are_plain_and_rows_frozen(client: Client) -> None:
    """Rows contain only text and numbers, and cannot be changed."""
    kept = client.submit(after, 1, key=("a", 1, "b"))
    kept.result()
    snapshot = dask_strata.live(client)
    assert all(type(value) in PLAIN for task in snapshot.tasks for value in vars(task).values())
    for worker in snapshot.workers:
        values = [v for v in vars(worker).values() if not isinstance(v, tuple)]
        assert all(type(value) in PLAIN for value in values)
    with pytest.raises(AttributeError):
        snapshot.tasks[0].state = "better"  # type: ignore[misc]
    with pytest.raises(TypeError):
        snapshot.states["memory"] = 0  # type: ignore[index]


def test_frames_have_a_column_for_each_attribute(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks and workers convert to frames, also without rows; without pandas it is an error."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    empty = dask_strata.live(client).tasks.to_pandas()
    assert (len(empty), list(empty.columns)) == (0, list(LiveTask.__annotations__))
    kept = client.submit(after, 1, key="kept")
    kept.result()
    snapshot = dask_strata.live(client)
    [row] = snapshot.tasks.to_pandas().to_dict("records")
    assert (row["key"], row["state"]) == ("kept", "memory")
    workers = snapshot.workers.to_pandas()
    assert list(workers.columns) == list(LiveWorker.__annotations__)
    assert workers.nthreads.tolist() == [1, 1]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(StrataError, match="needs pandas"):
        snapshot.tasks.to_pandas()


def test_an_asynchronous_client_awaits_it(cluster: LocalCluster) -> None:
    """With an asynchronous client the snapshot is awaited, as with Dask's own methods."""

    async def work() -> Snapshot:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            await client.submit(after, 1, 2, key="awaited")
            kept = client.submit(after, 1, 2, 3, key="kept")
            await kept
            return await dask_strata.live(client)  # type: ignore[misc]

    assert "kept" in by_key(asyncio.run(work()))


def test_the_current_client_is_the_default(client: Client) -> None:
    """Without a client the current one is used; without any, it is an error."""
    assert dask_strata.live().scheduler == client.scheduler.address
    code = "import dask_strata; dask_strata.live()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UsageError: There is no Dask client to query." in done.stderr


def test_a_scheduler_without_the_package(tmp_path: Path) -> None:
    """A scheduler that cannot import dask-strata still returns a snapshot."""
    file = tmp_path / "scheduler.json"
    code = (
        "import sys; sys.modules['dask_strata'] = None\n"
        "from distributed.cli.dask_scheduler import main; main()"
    )
    options = ("--port", "0", "--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", file)
    with subprocess.Popen([sys.executable, "-c", code, *options], cwd=tmp_path) as scheduler:
        try:
            wait_until(lambda: file.exists() and file.read_text(), what="the scheduler")
            with Client(scheduler_file=str(file), set_as_default=False) as client:
                waiting = client.submit(abs, -1, key="waiting for a worker")
                wait_until(lambda: dask_strata.live(client).tasks, what="the task to arrive")
                snapshot = dask_strata.live(client)
                with pytest.raises(ImportError):
                    client.run_on_scheduler(lambda: __import__("dask_strata"))
                del waiting
        finally:
            scheduler.terminate()
    assert [task.key for task in snapshot.tasks] == ["waiting for a worker"]
    assert {task.state for task in snapshot.tasks} <= {"no-worker", "queued"}
    assert len(snapshot.workers) == 0
