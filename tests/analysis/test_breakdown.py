"""The breakdown of thread-seconds of synthetic runs, for which it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.breakdown import KINDS, breakdown
from tests.analysis.one_worker import W, intervals, one_worker
from tests.support.synthetic import SECOND, T0, Process, life, new_run, small_run


def test_worker_seconds_add_up(tmp_path: Path) -> None:
    """Two tasks of 4 s on two threads in 10 s are 8 s of compute and 12 s of idleness."""
    spent = breakdown(open_run(small_run(tmp_path / "r")))
    assert spent.total_seconds == pytest.approx(20)
    assert spent.seconds["compute"] == pytest.approx(8)
    assert spent.seconds["idle"] == pytest.approx(12)
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)
    assert tuple(spent.seconds) == KINDS


def test_each_moment_of_an_action_counts_once(tmp_path: Path) -> None:
    """Overlapping intervals of one action count once; those of other actions are separate."""
    rows = life("a-1", 1, 9, W)
    rows[2]["startstops"] = intervals(
        ("compute", 2, 5), ("compute", 4, 6), ("compute", 3, 4), ("deserialize", 1, 2),
        ("deserialize", 1, 3), ("transfer", 1, 2),
    )  # fmt: skip
    [attempt] = open_run(one_worker(tmp_path / "r", rows)).attempts.to_arrow().to_pylist()
    spent = [attempt[f"{what}_seconds"] for what in ("compute", "deserialize", "transfer")]
    assert spent == pytest.approx([4, 2, 1])


def test_free_threads_wait_for_transfers_only_as_long_as_tasks_do(tmp_path: Path) -> None:
    """A transfer of 3 s beside one busy thread counts 3 s, not 6, and computing counts once."""
    rows = life("a-1", 1, 9, W) + life("b-1", 2, 8, W)
    rows[5]["startstops"] = intervals(
        ("transfer", 2, 5), ("deserialize", 5, 6), ("disk-read", 6, 6.5), ("compute", 6.5, 8)
    )
    spent = breakdown(open_run(one_worker(tmp_path / "r", rows)))
    expected = {"compute": 9.5, "transfer": 3, "deserialize": 1.5, "idle": 6}
    assert spent.seconds == pytest.approx(dict.fromkeys(KINDS, 0) | expected)


def test_more_tasks_than_threads_share_the_threads(tmp_path: Path) -> None:
    """Three tasks at once on one thread cannot have computed more than the thread's time."""
    rows = [r for k in "abc" for r in life(f"{k}-1", 2, 6, W)]
    spent = breakdown(open_run(one_worker(tmp_path / "r", rows, nthreads=1)))
    assert spent.seconds["compute"] == pytest.approx(4)
    assert sum(spent.seconds.values()) == pytest.approx(10)


def test_a_worker_that_comes_back_is_another_worker(tmp_path: Path) -> None:
    """After a death, a worker at the same address has its own row, threads and seconds."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [
        {"time": T0, "worker": W, "name": "w", "action": "add"},
        {"time": T0 + 3 * SECOND, "worker": W, "action": "remove", "reason": "unexpected: x"},
        {"time": T0 + 4 * SECOND, "worker": W, "name": "w", "action": "add"},
    ])  # fmt: skip
    scheduler.write("scheduler_transitions", life("a-1", 1, 2, W) + life("b-1", 5, 9, W))
    scheduler.end()
    for number, start in ((1, 0.1), (2, 4.1)):
        facts = {"address": W, "name": "w", "nthreads": 2, "start": T0 + int(start * SECOND)}
        Process(folder, f"worker-{number}", **facts).end()
    run = open_run(folder)
    workers = run.workers.to_arrow().to_pylist()
    assert [(w["process"], w["n_attempts"], w["compute_seconds"]) for w in workers] == [
        ("worker-1", 1, 1.0),
        ("worker-2", 1, 4.0),
    ]
    assert workers[0]["end_reason"] == "unexpected: x"
    spent = breakdown(run)
    assert spent.total_seconds == pytest.approx(2 * 3 + 2 * 6)
    assert spent.seconds["compute"] == pytest.approx(5)


def test_a_task_that_fetches_from_several_workers_waits_once(tmp_path: Path) -> None:
    """Transfers of one task that overlap are as long as they last together."""
    rows = life("a-1", 1, 9, W)
    rows[2]["startstops"] = intervals(
        ("transfer", 1, 4), ("transfer", 1, 3), ("transfer", 2, 5), ("compute", 5, 9)
    )
    run = open_run(one_worker(tmp_path / "r", rows, nthreads=4))
    assert breakdown(run).seconds["transfer"] == pytest.approx(4)
    assert run.attempts.to_arrow()["transfer_seconds"].to_pylist() == [4.0]
