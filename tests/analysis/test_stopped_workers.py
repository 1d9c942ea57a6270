"""Times in which a worker could do nothing: it was silent, paused, or used its disk."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.breakdown import breakdown
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.timeline.timeline import PHASES, timeline
from tests.conftest import rows, wait_until
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run

V, W = "tcp://v:1", "tcp://w:1"

#: Longest time in seconds between two samples of a worker here, and in which a test notices an end.
LATE = 1.5


def at(seconds: float) -> int:
    """Return a time in ns since the epoch."""
    return T0 + int(seconds * SECOND)


def pids(folder: Path) -> list[int]:
    """Return the processes that began the task, in order."""
    found = sorted(folder.glob("began-*"), key=lambda path: path.stat().st_mtime_ns)
    return [int(path.name.partition("-")[2]) for path in found]


def until_told(folder: Path) -> None:
    """Note the process, and return once a file exists."""
    (folder / f"began-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)


@pytest.mark.long
def test_the_path_waits_for_the_removal_of_a_silent_worker(runs: Path, tmp_path: Path) -> None:
    """From SIGSTOP until Dask removed the worker, the run waited for nothing but its time limit."""
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "6s"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        task = client.submit(until_told, tmp_path, key="held-1")
        [first] = wait_until(lambda: pids(tmp_path), what="the task to begin")
        workers = client.run(os.getpid)
        [address] = [worker for worker, pid in workers.items() if pid == first]
        os.kill(first, signal.SIGSTOP)
        stopped = time.time()
        wait_until(lambda: address not in client.nthreads(), what="Dask to remove it")
        removed = time.time()
        (tmp_path / "go").touch()
        task.result(timeout=60)
    waited = critical_path(run).seconds["silent worker"]
    assert removed - stopped - LATE < waited < removed - stopped + LATE
    assert breakdown(run).seconds["silent worker"] == pytest.approx(waited, abs=LATE)
    [lost] = [insight for insight in summarize(run).insights if insight.cause == "lost-worker"]
    assert lost.seconds >= waited - LATE


@pytest.mark.parametrize("last", [1.5, 100.0])
def test_the_time_of_a_silent_worker_is_neither_scheduling_nor_idle(
    tmp_path: Path, last: float
) -> None:
    """A worker with its last sample at `last` began a task at 2 s, and was removed at 302 s."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    gone = {"action": "remove", "reason": "unexpected: check-worker-ttl-1.0"}
    add = {"action": "add", "reason": "1 threads"}
    scheduler.write(
        "worker_events",
        [
            {"time": at(0), "worker": W, "name": "w", **add},
            {"time": at(302), "worker": W, "name": "w", "stimulus_id": "ttl", **gone},
            {"time": at(303), "worker": V, "name": "v", **add},
        ],
    )
    lost = moves("x-1", (1, "released", "waiting"), (2, "waiting", "processing"))
    lost += moves("x-1", (302, "processing", "released"), worker=W)
    lost[-1]["stimulus_id"] = "ttl"
    again = life("x-1", 303, 310, V)
    scheduler.write("scheduler_transitions", lost + again)
    worker = Process(folder, "worker-1", address=W, name="w", nthreads=1)
    worker.write(
        "worker_samples",
        [{"time": at(t), "worker": W, "seen_by": "worker"} for t in (1.0, last)],
    )
    began = {"worker": W, "key": "x-1", "start_state": "ready", "finish_state": "executing"}
    stimulus = f"compute-task-{at(2.001) / 1e9:.7f}"
    worker.write("worker_transitions", [{"time": at(2.01), "stimulus_id": stimulus, **began}])
    Process(folder, "worker-2", address=V, name="v", nthreads=1)
    run = open_run(folder)
    alive = max(last, 2.01)
    assert critical_path(run).seconds["silent worker"] == pytest.approx(302 - alive)
    assert breakdown(run).seconds["silent worker"] == pytest.approx(302 - alive)
    computed = [attempt["compute_seconds"] for attempt in rows(run, "from attempts")]
    assert computed == pytest.approx([alive - 2.01 or None, 7])


def one_task(folder: Path, startstops: list[list[Any]], worker: dict[str, list[Any]]) -> Run:
    """Make a run of one task on one worker, which wrote rows of some tables."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": W, "name": "w", "action": "present", "reason": "2 threads"}],
    )
    row = life("x-1", 1.9, 9.1, W)
    row[-1]["startstops"] = startstops
    scheduler.write("scheduler_transitions", row)
    scheduler.write("scheduler_samples", [{"time": at(10)}])
    process = Process(folder, "worker-1", address=W, name="w", nthreads=2)
    for table, of_table in worker.items():
        process.write(table, of_table)
    return open_run(folder)


def test_what_a_worker_did_not_read_from_disk_is_no_disk_time(tmp_path: Path) -> None:
    """Of 7 s that Dask calls disk-read, two reads of 0.5 s and 1 s are on record."""
    read = {"worker": W, "key": "x-0", "action": "unspill", "nbytes": 100}
    run = one_task(
        tmp_path / "r",
        [["disk-read", at(2), 7 * SECOND, None], ["compute", at(9), SECOND // 10, None]],
        {
            "spills": [
                {"time": at(2.3), "seconds": 0.5, **read},  # it began 0.2 s before the phase
                {"time": at(6), "seconds": 1.0, **read},
            ]
        },
    )
    [attempt] = rows(run, "from attempts")
    assert attempt["disk_seconds"] == pytest.approx(1.3)
    assert attempt["deserialize_seconds"] == pytest.approx(5.7)
    assert breakdown(run).seconds["deserialize"] == pytest.approx(5.7)
    drawn = timeline(run)
    parts = zip(drawn.parts.kind, drawn.parts.start, drawn.parts.stop, strict=True)
    assert [(PHASES[k], (a + drawn.origin - T0) / 1e9, (b + drawn.origin - T0) / 1e9)
            for k, a, b in parts] == [
        ("disk-read", 2.0, pytest.approx(2.3)),
        ("deserialize", pytest.approx(2.3), 5.0),
        ("disk-read", 5.0, 6.0),
        ("deserialize", 6.0, 9.0),
    ]  # fmt: skip


def test_a_pause_is_the_same_wherever_it_is_shown(tmp_path: Path) -> None:
    """A worker that was paused before the recording began has samples, and no event, of it."""
    statuses = [(0.5, "paused"), (1.0, "paused"), (3.0, "running"), (4.0, "paused")]
    sample = {"worker": W, "seen_by": "worker"}
    run = one_task(
        tmp_path / "r",
        [["compute", at(3), 6 * SECOND, None]],
        {"worker_samples": [{"time": at(t), "status": s, **sample} for t, s in statuses]},
    )
    sizes = rows(run, "select epoch_ns(start) as t, n_paused from cluster_sizes order by t")
    assert [((row["t"] - T0) / 1e9, row["n_paused"]) for row in sizes] == [
        (0, 0), (0.5, 1), (3, 0), (4, 1),
    ]  # fmt: skip
    # Two threads for 2.5 s; then one is busy until 9 s, and both are free until 10 s.
    assert breakdown(run).seconds["paused worker"] == pytest.approx(2 * 2.5 + 5 + 2)
    [paused] = [i for i in summarize(run).insights if i.cause == "paused"]
    assert "2 pauses of 1 worker" in paused.text


def test_samples_of_a_worker_that_was_removed_are_no_pause(tmp_path: Path) -> None:
    """Its process may go on."""
    run = one_task(tmp_path / "r", [["compute", at(3), SECOND, None]], {})
    scheduler = Process(run.path, "scheduler-2")
    scheduler.write(
        "worker_events",
        [{"time": at(9.5), "worker": W, "action": "remove", "reason": "expected: "}],
    )
    worker = Process(run.path, "worker-2")
    sample = {"worker": W, "seen_by": "worker", "status": "paused"}
    worker.write("worker_samples", [{"time": at(9.7), **sample}])
    assert max(row["n_paused"] for row in rows(open_run(run.path), "from cluster_sizes")) == 0


def test_waits_for_a_shuffle_are_transfer_and_neither_compute_nor_idle(tmp_path: Path) -> None:
    """Senders computed from 10 s to 20 s, and waited 8 s of it for their shuffle."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": W, "name": "w", "action": "add", "reason": "1 threads"}],
    )
    scheduler.write("scheduler_transitions", life("send-1", 10, 20, W))
    keys = ("send-1", "shuffle-barrier-xyz")
    scheduler.write(
        "graph_tasks",
        [{"key": key, "prefix": key.rpartition("-")[0], "function": "f"} for key in keys],
    )
    scheduler.write("graph_edges", [{"key": keys[1], "dependency": keys[0]}])
    scheduler.write("scheduler_samples", [{"time": at(40)}])
    worker = Process(folder, "worker-1", address=W, name="w", nthreads=1)
    shuffle = {"worker": W, "shuffle": "xyz", "run_id": 1, "kind": "DataFrameShuffle"}
    waited = {"start": at(10), "wait_seconds": 8.0, "sent_bytes": 1000, "ended": True}
    worker.write("shuffle_samples", [{"time": at(20), **shuffle, **waited}])
    run = open_run(folder)
    spent = breakdown(run).seconds
    assert spent["transfer"] == pytest.approx(8)
    assert spent["compute"] == pytest.approx(2)
    assert spent["idle"] == pytest.approx(30)
    evidence = Evidence(run, critical_path(run))
    assert [evidence.idle_share(at(a), at(b)) for a, b in [(0, 11), (10, 20), (15, 30)]] == [
        pytest.approx(share) for share in (10 / 11, 0, 10 / 15)
    ]
