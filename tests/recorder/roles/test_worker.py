"""The record of workers: state machine, samples, transfers, spills, pauses and ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.analysis.check import WHOLE
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.roles.workload import (
    RecordedWork,
    block,
    inc,
    kill_this_process,
    length,
    nanoseconds,
    query_now,
)


def test_worker_transitions(recorded: RecordedWork) -> None:
    """The transitions of a task in the worker's state machine are recorded with stimulus."""
    run, reported = recorded.run, recorded.facts["there"]
    found = rows(run, "select * from worker_transitions where key = 'cell-there' order by seq")
    states = [(r["start_state"], r["finish_state"]) for r in found]
    assert ("ready", "executing") in states
    assert ("executing", "memory") in states
    assert {r["worker"] for r in found} == {reported["worker"]}
    assert all(r["stimulus_id"] for r in found)
    times = [nanoseconds(r["time"]) for r in found]
    assert times == sorted(times)


def test_samples(recorded: RecordedWork) -> None:
    """State over time is recorded by scheduler and worker, with memory, CPU and loop lag."""
    run = recorded.run
    samples = rows(
        run,
        """
        select seen_by, worker, count(*) as n, max(executing) as executing,
               max(processing) as processing, max(occupancy_seconds) as occupancy,
               max(managed_bytes) as managed, min(unmanaged_bytes) as unmanaged,
               max(spilled_bytes) as spilled, min(rss_bytes) as rss, max(cpu_percent) as cpu,
               max(loop_lag_seconds) as lag, max(num_fds) as fds, max(status) as status
        from worker_samples group by all order by seen_by, worker
        """,
    )
    assert [(s["seen_by"], s["worker"]) for s in samples] == [
        (by, worker) for by in ("scheduler", "worker") for worker in recorded.workers
    ]
    for sample in samples:
        assert sample["n"] >= 10
        assert sample["status"] == "running"
        assert sample["rss"] > 20_000_000
        assert sample["unmanaged"] > 20_000_000
        assert sample["cpu"] > 0
        assert sample["executing"] == 2
    assert all(s["processing"] >= 2 and s["occupancy"] > 0 for s in samples[:2])
    assert all(s["spilled"] == 0 for s in samples[:2])
    assert max(s["managed"] for s in samples[:2]) >= 3_000_000
    assert max(s["managed"] for s in samples[2:]) >= 3_000_000
    assert all(s["lag"] >= 0 and s["fds"] > 5 for s in samples[2:])
    [own] = rows(
        run,
        "select max(tasks) as tasks, max(workers) as workers, min(rss_bytes) as rss, "
        "max(occupancy_seconds) as occupancy, max(loop_lag_seconds) as lag from scheduler_samples",
    )
    assert own["tasks"] >= 8
    assert own["workers"] == 2
    assert own["rss"] > 20_000_000
    assert own["occupancy"] > 0
    assert own["lag"] is not None


@pytest.mark.long
def test_killed_workers(tmp_path: Path) -> None:
    """A task that kills workers is suspicious until Dask gives up; each step is recorded."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "runs", client=client) as run,
    ):
        future = client.submit(kill_this_process, key="killer")
        dependent = client.submit(inc, future, key="dependent")
        error = future.exception()
        assert type(error).__name__ == "KilledWorker"
        assert type(dependent.exception()).__name__ == "KilledWorker"
        wait_until(lambda: len(cluster.scheduler.workers) == 2, what="new workers")
        wait_until(
            lambda: len(query_now(run, "from worker_events where action = 'process-exit'")) == 2,
            what="both exits, recorded by the nannies",
        )
    assert run.state == "complete"
    [last] = run.rows(
        "select * from scheduler_transitions where finish_state = 'erred' and key = 'killer'"
    )
    assert last["suspicious"] == 2
    assert last["exception"].startswith("KilledWorker")
    [blamed] = run.rows(
        "select * from scheduler_transitions where finish_state = 'erred' and key = 'dependent'",
    )
    assert blamed["blame"] == "killer"
    attempts = run.task("killer").attempts
    assert [a["outcome"] for a in attempts] == ["lost", "erred"]
    dead = [a["worker"] for a in attempts]
    assert len(set(dead)) == 2
    found = rows(run, "select * from worker_events order by time, seq")
    exits = [r["reason"] for r in found if r["action"] == "process-exit"]
    assert all(reason.endswith("was killed by SIGKILL") for reason in exits)
    starts = [r for r in found if r["action"] == "process-start"]
    assert len(starts) >= 4
    removed = {r["worker"]: r["reason"] for r in found if r["action"] == "remove"}
    assert all(removed[w].startswith("unexpected") for w in dead)
    # Only the last events of the killed processes are missing.
    check = run.check()
    assert check.grade != WHOLE
    cut = {
        r["process"] for r in rows(run, "select process from processes where exit_reason is null")
    }
    assert len(cut) == 2
    assert {f.process for f in check.incomplete} == cut
    assert all("was killed after" in f.text for f in check.incomplete)


def totals(dask_worker: Any) -> tuple[int, int]:
    """Return the numbers of incoming and outgoing transfers of a worker."""
    return (
        dask_worker.state.transfer_incoming_count_total,
        dask_worker.transfer_outgoing_count_total,
    )


@pytest.mark.long
def test_transfers(tmp_path: Path) -> None:
    """If there are more transfers than Dask keeps in memory, both ends still record all."""
    n = 1_200
    settings = {"distributed.worker.transfer.message-bytes-limit": 1}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(cluster.scheduler.workers)
        before = client.run(totals)
        with dask_strata.record(tmp_path / "runs", client=client) as run:
            keys = [f"from-{i}" for i in range(n)]
            sources = client.map(block, range(1, n + 1), workers=[a], key=keys)
            distributed.wait(sources)
            sizes = client.map(length, sources, workers=[b], key=[f"to-{i}" for i in range(n)])
            assert client.gather(sizes) == list(range(1, n + 1))
            after = client.run(totals)
    assert_whole(run)
    for worker in (a, b):
        ends = rows(run, f"select \"end\" from transfer_ends where worker = '{worker}'")
        found = Counter(r["end"] for r in ends)
        assert found["incoming"] == after[worker][0] - before[worker][0]
        assert found["outgoing"] == after[worker][1] - before[worker][1]
    assert after[b][0] - before[b][0] > 1_000
    both = rows(run, f"select * from transfers where source = '{a}' and destination = '{b}'")
    assert len(both) == after[b][0] - before[b][0]
    assert {t["seen_by"] for t in both} == {"both"}
    moved = rows(run, "select key, nbytes from transfer_keys where key like 'from-%'")
    assert sorted(r["key"] for r in moved) == sorted(f"from-{i}" for i in range(n))
    for row in moved:
        assert row["nbytes"] == int(row["key"].removeprefix("from-")) + 1
    to_client = rows(run, "select * from transfers where destination is null")
    assert to_client
    assert all(t["source"] == b and t["seen_by"] == "source" for t in to_client)


def test_spills(tmp_path: Path) -> None:
    """Each write to and read from disk by Dask's memory management is recorded."""
    settings = {
        "distributed.worker.memory.target": 0.1,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "runs", client=client, sample_interval="100ms") as run,
    ):
        keys = [f"heavy-{i}" for i in range(12)]
        heavy = client.map(block, [8_000_000] * 12, key=keys)
        distributed.wait(heavy)
        [on_disk] = client.run(lambda dask_worker: sorted(dask_worker.data.slow)).values()
        wait_until(
            lambda: query_now(
                run,
                "select seen_by from worker_samples "
                f"where spilled_bytes >= {len(on_disk) * 8_000_000} group by seen_by",
            )[1:],
            what="a sample of spilled bytes",
        )
        sizes = client.map(length, heavy, key=[f"size-{i}" for i in range(12)])
        assert client.gather(sizes) == [8_000_000] * 12
        [address] = cluster.scheduler.workers
    assert_whole(run)
    found = rows(run, "select * from spills order by seq")
    assert {r["worker"] for r in found} == {address}
    spilled = [r for r in found if r["action"] == "spill" and r["key"] in keys]
    assert {r["key"] for r in spilled} >= set(on_disk)
    assert len(on_disk) >= 5
    for row in spilled:
        assert row["nbytes"] == 8_000_000
        assert row["disk_bytes"] >= 8_000_000
        assert row["seconds"] > 0
    back = {r["key"] for r in found if r["action"] == "unspill"}
    assert back >= set(on_disk)
    story = {e.what for e in run.task(on_disk[0]).events}
    assert {"spill", "unspill"} <= story


@pytest.mark.long
def test_paused(tmp_path: Path) -> None:
    """A pause of a worker for its memory is recorded: time, reason, and in the samples."""
    settings = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.5,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="800MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        [ws] = cluster.scheduler.workers.values()
        with dask_strata.record(tmp_path / "runs", client=client, sample_interval="100ms") as run:
            big = client.submit(block, 500_000_000, key="big")
            wait_until(lambda: ws.status.name == "paused", what="the pause")
            wait_until(
                lambda: query_now(
                    run,
                    "select 1 from worker_samples where status = 'paused' and seen_by = 'worker'",
                ),
                what="a sample of the pause",
            )
            del big
            wait_until(lambda: ws.status.name == "running", what="the end of the pause")
            address = ws.address
    assert_whole(run)
    found = rows(run, "select worker, action, reason from worker_events order by time, seq")
    about = [(f["action"], f["reason"]) for f in found if f["worker"] == address]
    assert ("paused", "running → paused") in about
    assert ("status", "paused → running") in about
    assert about.index(("paused", "running → paused")) < about.index(("status", "paused → running"))
    [sample] = rows(run, "select max(rss_bytes) as rss from worker_samples where status = 'paused'")
    assert sample["rss"] > 400 * 2**20


def test_ends_of_workers(tmp_path: Path) -> None:
    """The end of a retired worker is recorded with its reason; the other has none."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(cluster.scheduler.workers)
        with dask_strata.record(tmp_path / "runs", client=client) as run:
            client.retire_workers([a])
            wait_until(lambda: a not in cluster.scheduler.workers, what="the retirement")
            wait_until(
                lambda: query_now(run, "from processes where role = 'worker' and stop is not null"),
                what="the last row of the worker",
            )
    assert_whole(run)
    [left] = rows(run, f"select * from workers where worker = '{a}'")
    assert left["stop"] > left["start"]
    assert left["end_reason"]
    [stayed] = rows(run, f"select * from workers where worker = '{b}'")
    assert stayed["end_reason"] is None
    actions = {
        r["action"] for r in rows(run, f"select action from worker_events where worker = '{a}'")
    }
    assert "remove" in actions
    assert actions & {"retired", "closing"}
    [process] = rows(run, f"select exit_reason from processes where address = '{a}'")
    assert process["exit_reason"] in {"closed", "process exit"}
