"""Dask's fine performance metrics: recorded exactly, and the same seconds as the record's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.breakdown import breakdown
from dask_strata.analysis.check.fine_metrics import compare_fine_metrics, totals
from dask_strata.recorder.profiling import fine_metrics
from dask_strata.recorder.profiling.fine_metrics import FineMetrics
from tests.conftest import assert_whole, rows

#: Largest difference between Dask's metrics and the record: the issue requires 1 %.
LARGEST = 0.01


def increment(x: int) -> int:
    """Return the next number."""
    return x + 1


def fail(x: int) -> None:
    """Fail after a while."""
    time.sleep(0.05)
    raise ValueError(x)


def fail_once(x: int, folder: str) -> int:
    """Fail in the first attempt."""
    time.sleep(0.05)
    mark = Path(folder) / f"attempt-{x}"
    if not mark.exists():
        mark.touch()
        raise ValueError(x)
    return x


async def pause(x: int) -> int:
    """Wait without a thread."""
    await asyncio.sleep(0.1)
    return x


def trivial(client: Client, _: Path) -> None:
    """Run many short tasks."""
    client.gather(client.map(increment, range(500)))


def transfers(client: Client, _: Path) -> None:
    """Make arrays on one worker, and use them on the other."""
    first, second = sorted(client.scheduler_info()["workers"])
    made = [client.submit(np.ones, 500_000, pure=False, workers=[first]) for _ in range(8)]
    client.gather([client.submit(np.sum, x, workers=[second]) for x in made])


def failing(client: Client, _: Path) -> None:
    """Run tasks that fail beside others."""
    wait([*client.map(fail, range(6), pure=False), *client.map(increment, range(20), pure=False)])


def retrying(client: Client, folder: Path) -> None:
    """Run tasks that succeed in their second attempt."""
    client.gather(client.map(fail_once, range(6), folder=str(folder), retries=3))


def coroutines(client: Client, _: Path) -> None:
    """Run asynchronous tasks."""
    client.gather(client.map(pause, range(6), pure=False))


def spilling(client: Client, _: Path) -> None:
    """Make more than fits into memory, and use it."""
    made = [client.submit(np.random.random, 2_500_000, pure=False) for _ in range(24)]
    wait(made)
    client.gather([client.submit(np.sum, x) for x in made])


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Client]:
    """Two worker processes of two threads."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


Workload = Callable[[Client, Path], None]


def recorded(client: Client, workload: Workload, folder: Path) -> tuple[Run, dict[str, Any]]:
    """Record a workload; return the run and Dask's own sums of it by worker."""
    before = client.run(sums)
    with dask_strata.record(folder / "runs", client=client) as recording:
        workload(client, folder)
        client.run(lambda: None)
        after = client.run(sums)
    own = {
        worker: {k: v - before[worker].get(k, 0) for k, v in found.items()}
        for worker, found in after.items()
    }
    return open_run(recording.path), own


def sums(dask_worker: Any) -> dict[tuple[Any, ...], float]:
    """Return the fine performance metrics of a worker."""
    return {k: v for k, v in dask_worker.digests_total.items() if isinstance(k, tuple)}


def on_record(run: Run) -> dict[str, dict[tuple[Any, ...], float]]:
    """Return the last recorded sums by worker, with keys as in Dask."""
    found: dict[str, dict[tuple[Any, ...], float]] = {}
    for row in rows(run, "select * from fine_metrics where final and context <> 'spill'"):
        labels = [row["span_id"], row["prefix"], *row["activity"].split(" "), row["unit"]]
        key = (row["context"], *(label for label in labels if label is not None))
        found.setdefault(row["worker"], {})[key] = row["value"]
    return found


@pytest.mark.parametrize(
    "workload",
    [
        transfers,
        *(
            pytest.param(w, marks=pytest.mark.long)
            for w in (trivial, failing, retrying, coroutines)
        ),
    ],
)
def test_metrics_agree_with_the_record(
    two_workers: Client, tmp_path: Path, workload: Workload
) -> None:
    """Each sum of Dask is on record, and each that both measure differs by less than 1 %."""
    run, dask_sums = recorded(two_workers, workload, tmp_path)
    found = on_record(run)
    for worker, expected in dask_sums.items():
        known = {k: v for k, v in expected.items() if v and k[0] != "memory-monitor"}
        of_worker = found.get(worker, {})
        # The client's own calls fetch data after the last look of the test.
        assert {k: of_worker.get(k) for k in known if k[0] == "execute"} == pytest.approx(
            {k: v for k, v in known.items() if k[0] == "execute"}
        )
        assert known.keys() <= of_worker.keys()
    compared = totals(compare_fine_metrics(run))
    assert "compute" in {c.what for c in compared}
    for comparison in compared:
        assert comparison.recorded_seconds > 0
        assert comparison.apart < LARGEST, comparison
    if workload is transfers:
        assert {"transfers received", "transfers sent"} <= {c.what for c in compared}
    assert "Dask's fine metrics: " in " ".join(f.text for f in run.check().findings)
    assert_whole(run)


@pytest.mark.long
def test_thread_seconds_agree_with_the_metrics(two_workers: Client, tmp_path: Path) -> None:
    """So do the thread-seconds of compute of each prefix, where no more tasks run than threads."""
    run, _ = recorded(two_workers, transfers, tmp_path)
    by_dask = {c.prefix: c.dask_seconds for c in compare_fine_metrics(run) if c.prefix}
    ours = {p.prefix: p.seconds["compute"] for p in breakdown(run).prefixes}
    assert by_dask
    assert {p: ours[p] for p in by_dask} == pytest.approx(by_dask, rel=LARGEST, abs=0.01)


@pytest.mark.long
def test_failed_attempts_are_a_sum_of_their_own_in_dask(
    two_workers: Client, tmp_path: Path
) -> None:
    """It begins before the function and ends after it, so that it is larger than the record's."""
    run, _ = recorded(two_workers, failing, tmp_path)
    [dask_sum] = rows(
        run,
        "select sum(value) as s from fine_metrics where final and activity = 'failed' "
        "and prefix = 'fail'",
    )
    [own] = rows(run, "select sum(compute_seconds) as s from attempts where outcome = 'erred'")
    assert own["s"] >= 6 * 0.05
    assert own["s"] <= dask_sum["s"] < 6 * 0.05 + 5


@pytest.mark.long
def test_spilling_agrees_with_the_record(tmp_path: Path) -> None:
    """Writes, reads and bytes are the same, and the seconds differ by what a call costs."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, memory_limit="400MB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        run, _ = recorded(client, spilling, tmp_path)
    metrics = {
        (r["activity"], r["unit"]): r["n"]
        for r in rows(
            run,
            "select activity, unit, sum(value) as n from fine_metrics "
            "where final and context = 'spill' group by all",
        )
    }
    own = {r["action"]: r for r in rows(
        run, "select action, count(*) as n, sum(disk_bytes)::bigint as b from spills group by 1"
    )}  # fmt: skip
    assert metrics["disk-write", "count"] == own["spill"]["n"] > 0
    assert metrics["disk-read", "count"] == own["unspill"]["n"] > 0
    assert metrics["disk-write", "bytes"] == own["spill"]["b"]
    [spilled] = [c for c in totals(compare_fine_metrics(run)) if c.what == "spilling"]
    assert spilled.apart < 0.03
    assert all(c.apart < LARGEST for c in totals(compare_fine_metrics(run)) if c.what != "spilling")


def engine_of(losses: list[dict[str, Any]]) -> Any:
    """Return an engine that keeps losses."""
    return SimpleNamespace(add=lambda table, **row: losses.append({"table": table, **row}))


def worker_of(digests: Any) -> Any:
    """Return a worker with these metrics."""
    return SimpleNamespace(address="tcp://w:1", digests_total=digests, data={})


def test_only_changes_since_the_start_are_recorded() -> None:
    """A row holds the sum since the recording began; the last one of each is marked."""
    digests: dict[Any, float] = {("execute", "s", "f", "thread-cpu", "seconds"): 1.0, "latency": 3}
    source = FineMetrics(worker_of(digests), engine_of([]))
    digests["execute", "s", "f", "thread-cpu", "seconds"] = 3.5
    digests["get-data", "network", "seconds"] = 0.25
    digests["p2p", "s", "background-comms", "send", "seconds"] = 2
    source._next = 0
    source.sample()
    [batch] = source.rows()
    assert batch.columns["value"] == [2.5, 0.25, 2.0]
    assert batch.columns["activity"] == ["thread-cpu", "network", "background-comms send"]
    assert batch.columns["prefix"] == ["f", None, None]
    source._next = 0
    source.sample()
    assert list(source.rows()) == []
    digests["get-data", "network", "seconds"] = 0.5
    source.detach()
    digests["get-data", "network", "seconds"] = 9
    source.finish()
    [batch] = source.rows()
    assert batch.columns["value"] == [2.5, 0.5, 2.0]
    assert batch.columns["final"] == [True, True, True]


def test_labels_of_users_are_texts_without_secrets() -> None:
    """Users may meter with labels of any type; a label that cannot be shown costs no row."""

    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    digests: dict[Any, float] = {}
    source = FineMetrics(worker_of(digests), engine_of([]))
    digests["execute", "s", "f", Odd(), "seconds"] = 1
    digests["execute", "s", "f", "password=hunter2", "seconds"] = 1
    source.detach()
    source.finish()
    [batch] = source.rows()
    activities = batch.columns["activity"]
    assert activities[0].startswith("<Odd: repr failed")
    assert "hunter2" not in activities[1]


def test_spans_beyond_the_bound_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that lives for long has many spans: their sums by prefix stay complete."""
    monkeypatch.setattr(fine_metrics, "MAX_METRICS", 3)
    losses: list[dict[str, Any]] = []
    digests: dict[Any, float] = {}
    source = FineMetrics(worker_of(digests), engine_of(losses))
    digests.update({("execute", f"s-{n}", "f", "thread-cpu", "seconds"): 1.0 for n in range(4)})
    source._next = 0
    source.sample()
    assert sum(batch.n for batch in source.rows()) == 4
    digests.update({("execute", f"s-{n}", "f", "thread-cpu", "seconds"): 1.0 for n in range(9)})
    source.detach()
    source.finish()
    [batch] = source.rows()
    assert dict(zip(batch.columns["span_id"], batch.columns["value"], strict=True)) == {
        **{f"s-{n}": 1.0 for n in range(3)},
        None: 6.0,
    }
    assert losses == []


def test_metrics_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may make a metric for each key: the first ones are recorded, the others are a loss."""
    monkeypatch.setattr(fine_metrics, "MAX_METRICS", 3)
    losses: list[dict[str, Any]] = []
    digests: dict[Any, float] = {}
    source = FineMetrics(worker_of(digests), engine_of(losses))
    digests.update({("execute", "s", "f", f"label-{n}", "seconds"): 1.0 for n in range(8)})
    source.detach()
    source.finish()
    [batch] = source.rows()
    assert batch.n == 6
    assert [(loss["what"], loss["count"]) for loss in losses] == [("fine_metrics", 2)]


def test_a_dask_without_these_metrics_is_a_loss() -> None:
    """Then the table has no rows, and `check` names the reason."""
    losses: list[dict[str, Any]] = []
    source = FineMetrics(SimpleNamespace(address="tcp://w:1", data={}), engine_of(losses))
    source.detach()
    source.finish()
    assert list(source.rows()) == []
    assert losses[0]["what"] == "fine_metrics"
