"""Decisions of adaptive scaling, and the load behind them, are those of Dask."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.deploy.adaptive import Adaptive

import dask_strata
from dask_strata import Run
from dask_strata.analysis.measured.scaling import summarize_scaling
from tests.conftest import rows, runs_in, wait_until

#: Tasks wait for it: they run in this process.
_go = threading.Event()


def wait(_: int) -> None:
    """Wait for the event."""
    _go.wait(60)


class Counting(Adaptive):
    """Keeps each number of workers that Dask asked for, and the plan when it decided."""

    targets: list[int]
    plans: list[tuple[str, int]]

    async def target(self) -> int:
        """Return the number, as Dask computes it."""
        found = await super().target()
        self.targets.append(found)
        return found

    async def recommendations(self, target: int) -> dict[str, Any]:
        """Return the decision, as Dask makes it."""
        found = await super().recommendations(target)
        if found["status"] != "same":
            self.plans.append((found["status"], len(self.plan)))
        return found


def _adapted(runs: Path) -> tuple[Run, list[Any], Counting]:
    """Record a cluster that grows for 20 waiting tasks, and shrinks when they are done."""
    cluster = LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=False,
        dashboard_address="",
        memory_limit=0,  # the process of all tests counts as the worker's memory
    )
    Counting.targets, Counting.plans = [], []
    with cluster, Client(cluster) as client:
        with dask_strata.record(runs=runs) as run:
            adaptive = cluster.adapt(
                Adaptive=Counting,
                minimum=1,
                maximum=3,
                interval="100ms",
                target_duration="1s",
                wait_count=2,
            )
            wait_until(lambda: len(cluster.scheduler.workers) == 1, what="the minimum")
            _go.clear()
            futures = client.map(wait, range(20))
            wait_until(lambda: len(cluster.scheduler.workers) == 3, what="the maximum")
            _go.set()
            client.gather(futures)
            del futures
            wait_until(lambda: len(cluster.scheduler.workers) == 1, what="the minimum again")
            wait_until(lambda: any(d["status"] == "down" for _, d in adaptive.log))
        log = list(adaptive.log)
        assert type(adaptive.log) is deque  # restored
        assert cluster.scheduler.handlers["adaptive_target"] == cluster.scheduler.adaptive_target
    return run, log, adaptive


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Any], Counting]:
    """A run with decisions, Dask's log of them, and what a subclass of Dask's counted."""
    return _adapted(tmp_path_factory.mktemp("runs"))


def test_each_decision_of_dasks_log_is_on_record_once(adapted: Any) -> None:
    """With its time, status, target, workers to close, and the bounds."""
    run, log, _ = adapted
    found = rows(run, "select *, epoch_ns(time) / 1e9 as at from adaptive_decisions order by time")
    assert [(pytest.approx(row["at"], abs=1e-5), row["status"]) for row in found] == [
        (moment, decision["status"]) for moment, decision in log
    ]
    assert {row["status"] for row in found} == {"up", "down"}
    for row, (_, decision) in zip(found, log, strict=True):
        assert (row["minimum"], row["maximum"]) == (1, 3)
        if row["status"] == "up":
            assert (row["target"], row["workers"]) == (decision["n"], None)
        else:
            assert sorted(json.loads(row["workers"])) == sorted(map(str, decision["workers"]))


def test_the_plan_is_the_one_before_the_decision(adapted: Any) -> None:
    """Of decisions since the cluster is followed; earlier ones have null."""
    run, _, adaptive = adapted
    found = rows(run, "from adaptive_decisions order by time")
    assert len(found) == len(adaptive.plans)
    for row, (status, plan) in zip(found, adaptive.plans, strict=True):
        assert row["status"] == status
        assert row["n_plan"] in {plan, None}
        if row["n_plan"] is not None and status == "down":
            assert row["target"] == plan - len(json.loads(row["workers"]))
    assert any(row["n_plan"] is not None for row in found)


def test_reasons_are_those_of_the_load(adapted: Any) -> None:
    """Work made it grow to its maximum, and idle workers or the minimum made it shrink."""
    run, _, adaptive = adapted
    found = rows(run, "from adaptive_decisions order by time")
    grown = [row for row in found if row["status"] == "up" and row["target"] == 3]
    assert grown
    assert {row["reason"] for row in grown} <= {"work", "maximum"}
    assert {row["wanted"] for row in found} <= set(adaptive.targets)
    assert all(row["queued"] + row["processing"] + row["no_worker"] > 0 for row in grown)
    assert all(row["target_seconds"] == 1 for row in found)
    shrunk = [row for row in found if row["status"] == "down"]
    assert {row["reason"] for row in shrunk} <= {"idle", "minimum"}
    # Dask's rule: the expected work does not need as many workers as there were.
    assert all(
        row["occupancy_seconds"] / row["target_seconds"] < row["n_workers"] for row in shrunk
    )


def test_targets_are_those_that_dask_computed(adapted: Any) -> None:
    """Each change of it, in order."""
    run, _, adaptive = adapted
    found = [row["target"] for row in rows(run, "from adaptive_targets order by time")]
    changes = [t for i, t in enumerate(adaptive.targets) if i == 0 or t != adaptive.targets[i - 1]]
    kept = [t for i, t in enumerate(found) if i == 0 or t != found[i - 1]]
    # The first requests may be from before the recording, the last ones from after it.
    assert any(changes[i : i + len(kept)] == kept for i in range(len(changes)))


def test_the_first_screen_names_decisions(adapted: Any) -> None:
    """How often it grew and shrank, and why."""
    run, log, _ = adapted
    found = summarize_scaling(run)
    assert found is not None
    assert found.n_up == sum(d["status"] == "up" for _, d in log)
    assert found.n_down == sum(d["status"] == "down" for _, d in log)
    text = found.sentence
    assert "→ 3 workers" in text
    assert "down" in text


def test_a_cluster_that_does_not_adapt_has_no_rows(tmp_path: Path) -> None:
    """Nothing is replaced, and nothing is shown."""
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client, dask_strata.record(runs=tmp_path) as run:
        client.submit(time.time).result()
    assert rows(run, "from adaptive_decisions") == rows(run, "from adaptive_targets") == []
    assert summarize_scaling(run) is None


_ELSEWHERE = """
    import json
    import time

    from distributed import Client
    from distributed.deploy.subprocess import SubprocessCluster


    if __name__ == "__main__":
        one = SubprocessCluster(n_workers=1, threads_per_worker=1)
        with one as cluster, Client(cluster) as client:
            adaptive = cluster.adapt(
                minimum=1, maximum=2, interval="200ms", target_duration="1s", wait_count=2
            )
            client.gather(client.map(time.sleep, [0.3 + i / 1e6 for i in range(20)]))
            until = time.monotonic() + 60
            while not any(d["status"] == "down" for _, d in adaptive.log):
                assert time.monotonic() < until
                time.sleep(0.05)
            print("LOG", json.dumps([[moment, d["status"]] for moment, d in adaptive.log]))
"""


@pytest.mark.long
def test_decisions_of_a_cluster_object_outside_of_the_schedulers_process(
    strata: Any, script: Any, runs: Path
) -> None:
    """The client's process records them, and the scheduler's the load."""
    done = strata("record", "-o", runs, script(_ELSEWHERE))
    [line] = [line for line in done.stdout.splitlines() if line.startswith("LOG ")]
    [run] = runs_in(runs)
    found = rows(run, "select *, epoch_ns(time) / 1e9 as at from adaptive_decisions order by time")
    assert [(pytest.approx(row["at"], abs=1e-5), row["status"]) for row in found] == [
        (moment, status) for moment, status in json.loads(line.removeprefix("LOG "))
    ]
    assert {row["process"].partition("-")[0] for row in rows(run, "from adaptive_log")} == {
        "client"
    }
    assert {row["reason"] for row in found if row["status"] == "up"} <= {"work", "maximum"}
    assert {row["reason"] for row in found if row["status"] == "down"} <= {"idle", "minimum"}


def test_two_recordings_at_once_record_and_restore(tmp_path: Path) -> None:
    """The one that began first ends first; Dask's own objects are back after the second."""
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address="")
    with cluster, Client(cluster) as client:
        first = dask_strata.record(client=client, runs=tmp_path / "first", sample_interval=0.1)
        second = dask_strata.record(client=client, runs=tmp_path / "second", sample_interval=0.1)
        one = first.__enter__()
        two = second.__enter__()
        adaptive = cluster.adapt(minimum=1, maximum=2, interval="100ms")
        wait_until(lambda: len(getattr(adaptive.log, "listeners", ())) == 2)
        wait_until(lambda: adaptive.log)
        first.__exit__(None, None, None)
        cluster.adapt(minimum=2, maximum=2, interval="100ms")
        wait_until(lambda: len(cluster.scheduler.workers) == 2)
        second.__exit__(None, None, None)
        assert cluster.scheduler.handlers["adaptive_target"] == cluster.scheduler.adaptive_target
        assert type(adaptive.log) is deque
    assert [row["target"] for row in rows(one, "from adaptive_decisions")] == [1]
    assert [row["target"] for row in rows(two, "from adaptive_decisions")] == [1, 2]
