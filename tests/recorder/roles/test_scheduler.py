"""The record of the scheduler: transitions, attempts, events, samples, queueing, stealing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.roles.workload import RecordedWork, inc, nap, query_now


def test_finished_task(recorded: RecordedWork) -> None:
    """A finished task has worker, thread, size, type and the interval of its computation."""
    run, reported = recorded.run, recorded.facts["there"]
    [row] = run.rows(
        "select * from scheduler_transitions "
        "where key = 'cell-there' and start_state = 'processing'",
    )
    assert row["finish_state"] == "memory"
    assert row["worker"] == reported["worker"]
    assert row["thread"] == reported["thread"]
    assert row["typename"] == "dict"
    assert row["nbytes"] == dask.sizeof.sizeof({**reported})
    assert row["stimulus_id"].startswith("task-finished-")
    assert row["run_id"] is not None
    [compute] = [i for i in row["startstops"] if i["action"] == "compute"]
    start, stop = compute["start"].timestamp(), compute["stop"].timestamp()
    # Dask shifts these times by its estimate of the clock offset, which may be 0.1 s off.
    assert abs(start - reported["start"]) < 0.5
    assert abs(stop - reported["stop"]) < 0.5
    transitions = rows(
        run,
        "select start_state, finish_state from scheduler_transitions "
        "where key = 'cell-there' order by seq",
    )
    assert [t["finish_state"] for t in transitions][:3] == ["waiting", "processing", "memory"]


def test_attempt_and_phases(recorded: RecordedWork) -> None:
    """An attempt that fetched data has the phases transfer, with its source, and compute."""
    run, (a, b) = recorded.run, recorded.workers
    [attempt] = run.task("cell-moved").attempts
    assert attempt["outcome"] == "memory"
    assert attempt["worker"] == b
    assert attempt["compute_seconds"] > 0
    assert attempt["transfer_seconds"] > 0
    phases = rows(run, "select * from phases where key = 'cell-moved'")
    by_action = {p["action"]: p for p in phases}
    assert by_action["transfer"]["source"] == a
    assert by_action["compute"]["source"] is None
    assert by_action["transfer"]["stop"] <= by_action["compute"]["start"]
    assert all(p["attempt"] == attempt["attempt"] and p["worker"] == b for p in phases)
    [transfer] = run.task("cell-source").transfers
    assert (transfer["source"], transfer["destination"]) == (a, b)
    assert transfer["seen_by"] == "both"
    assert transfer["total_bytes"] >= 3_000_000
    assert transfer["compressed_bytes"] >= 3_000_000


def test_failed_task(recorded: RecordedWork) -> None:
    """A failed task has exception and traceback; its dependents have the task to blame."""
    found = {
        row["key"]: row
        for row in recorded.run.rows(
            "select * from scheduler_transitions where finish_state = 'erred'"
        )
    }
    bad, worse = found["cell-bad"], found["cell-worse"]
    assert bad["exception"] == "ZeroDivisionError('on purpose')"
    assert "in explode" in bad["traceback"]
    assert 'raise ZeroDivisionError("on purpose")' in bad["traceback"]
    assert (bad["blame"], worse["blame"]) == ("cell-bad", "cell-bad")
    assert worse["exception"] is None
    assert recorded.run.task("cell-worse").attempts == []
    assert recorded.run.task("cell-bad").state == "erred"


def test_retries(recorded: RecordedWork) -> None:
    """Each attempt that failed and was retried has its outcome and its own exception."""
    attempts = recorded.run.task("cell-tried").attempts
    assert [a["outcome"] for a in attempts] == ["retried", "retried", "memory"]
    assert [a["exception"] for a in attempts] == ["OSError('try 1')", "OSError('try 2')", None]
    assert "succeed_the_third_time" in attempts[0]["traceback"]
    assert all(a["worker"] in recorded.workers and a["thread"] for a in attempts)
    assert recorded.run.task("cell-tried").facts["n_attempts"] == 3


def test_logged_events(recorded: RecordedWork) -> None:
    """Events that the user logs, on the client or in a task, are recorded."""
    found = {
        row["topic"]: json.loads(row["message"])
        for row in rows(recorded.run, "select topic, message from log_events")
    }
    assert found["from-the-client"] == {"answer": 42}
    assert found["from-a-worker"]["greeting"] == "hello"


@dataclass
class Scheduling:
    """A recorded run of a cluster that had to queue, steal, wait and restart."""

    run: Run
    workers: list[str]
    pids: list[int]
    new_workers: list[str] = field(default_factory=list)
    stolen: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def scheduling(tmp_path_factory: pytest.TempPathFactory) -> Scheduling:
    """Record queueing, a task that no worker can run, stealing and a restart."""
    runs = tmp_path_factory.mktemp("scheduling")
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        scheduler = cluster.scheduler
        a, b = sorted(scheduler.workers)
        made = Scheduling(None, [a, b], list(client.run(os.getpid).values()))  # type: ignore[arg-type]
        with dask_strata.record(runs, client=client, sample_interval="100ms") as made.run:
            client.gather(client.map(nap, [0.05] * 20, key=[f"queued-{i}" for i in range(20)]))
            nowhere = client.submit(inc, 1, key="nowhere", resources={"UNOBTAINIUM": 1})
            wait_until(lambda: scheduler.unrunnable, what="a task that no worker can run")
            wait_until(
                lambda: query_now(made.run, "select 1 from scheduler_samples where no_worker > 0"),
                what="a sample of it",
            )
            nowhere.cancel()
            keys = [f"steal-{i}" for i in range(12)]
            futures = client.map(
                nap, [0.2] * 12, key=keys, workers=[a], allow_other_workers=True, pure=False
            )
            client.gather(futures)
            made.stolen = {
                key: where[0]
                for key, where in client.who_has(futures).items()
                if where and where[0] != a
            }
            del futures, nowhere
            client.restart()
            assert client.submit(inc, 1, key="after").result() == 2
            made.new_workers = sorted(scheduler.workers)
    return made


def test_the_record_of_scheduling_is_complete(scheduling: Scheduling) -> None:
    """The record of a run with queueing, stealing and a restart is complete."""
    assert_whole(scheduling.run)


def test_queued(scheduling: Scheduling) -> None:
    """Tasks that wait on the scheduler have the state queued; samples count them."""
    run = scheduling.run
    [found] = rows(
        run,
        """
        select count(distinct key) filter (finish_state = 'queued') as queued,
               count(distinct key) filter (start_state = 'queued' and finish_state = 'processing')
                   as released
        from scheduler_transitions where key like 'queued-%'
        """,
    )
    assert found["queued"] == found["released"] == 18
    assert rows(run, "select max(queued) as n from scheduler_samples")[0]["n"] > 0


def test_no_worker(scheduling: Scheduling) -> None:
    """A task that no worker can run has the state no-worker; samples count it."""
    found = rows(
        scheduling.run,
        "select start_state, finish_state from scheduler_transitions "
        "where key = 'nowhere' order by seq",
    )
    assert "no-worker" in [r["finish_state"] for r in found]
    assert found[-1]["finish_state"] == "forgotten"
    [most] = rows(scheduling.run, "select max(no_worker) as n from scheduler_samples")
    assert most["n"] == 1
    assert scheduling.run.task("nowhere").attempts == []


def test_stealing(scheduling: Scheduling) -> None:
    """Each stolen task has the scheduler's decision, and its attempt is on the thief."""
    a, b = scheduling.workers
    assert scheduling.stolen, "Dask stole no task"
    confirmed = rows(
        scheduling.run, "select * from steals where outcome = 'confirm' and key like 'steal-%'"
    )
    assert {r["key"] for r in confirmed} >= set(scheduling.stolen)
    for row in confirmed:
        assert (row["source"], row["destination"]) in {(a, b), (b, a)}
        assert row["stimulus_id"].startswith("steal-")
    for key, worker in scheduling.stolen.items():
        assert scheduling.run.task(key).attempts[-1]["worker"] == worker
    requested = rows(scheduling.run, "select key from steals where outcome = 'request'")
    assert {r["key"] for r in requested} >= set(scheduling.stolen)


def test_restart(scheduling: Scheduling) -> None:
    """A restart of the cluster is recorded: ends of old workers and processes, new workers."""
    run = scheduling.run
    assert not set(scheduling.workers) & set(scheduling.new_workers)
    found = rows(run, "select worker, action, reason from worker_events order by time, seq")
    assert [f for f in found if f["action"] == "restart-cluster"]
    removed = {f["worker"] for f in found if f["action"] == "remove"}
    assert removed >= set(scheduling.workers)
    added = {f["worker"] for f in found if f["action"] == "add"}
    assert added >= set(scheduling.new_workers)
    exits = [f["reason"] for f in found if f["action"] == "process-exit"]
    assert {f"pid {pid} exited with status 0" for pid in scheduling.pids} <= set(exits)
    ended = rows(run, "select worker from workers where end_reason is not null")
    assert {r["worker"] for r in ended} == removed
    assert not removed & set(scheduling.new_workers)
