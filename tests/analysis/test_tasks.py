"""Tasks, attempts and transfers of synthetic runs, and selections of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.tasks import select_tasks
from dask_strata.errors import UnknownTaskError, UsageError
from tests.analysis.one_worker import W, one_worker
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run, small_run


def test_a_key_that_is_submitted_again_has_two_rows(tmp_path: Path) -> None:
    """A key that was forgotten and submitted again has two lives, each with its attempt."""
    rows = [
        *life("a-1", 1, 2, W),
        *moves("a-1", (3, "memory", "released"), (3.1, "released", "forgotten")),
        *life("a-1", 5, 6, W),
    ]
    run = open_run(one_worker(tmp_path / "r", rows))
    tasks = run.tasks.to_arrow().to_pylist()
    assert [(t["life"], t["state"], t["n_attempts"]) for t in tasks] == [
        (1, "memory", 1),
        (2, "memory", 1),
    ]
    assert [t["forgotten"] is None for t in tasks] == [False, True]
    assert len(run.attempts) == 2


def test_outcomes_of_attempts(tmp_path: Path) -> None:
    """Each way in which an attempt ends has its own outcome."""
    rows = [
        *life("memory-1", 1, 2, W),
        *moves("erred-1", (1, "waiting", "processing"), (2, "processing", "erred"), exception="E"),
        *moves(
            "retry-1", (1, "waiting", "processing"), (2, "processing", "released"), exception="E"
        ),
        *moves("cancel-1", (1, "waiting", "processing"), (2, "processing", "released")),
        *moves("running-1", (1, "waiting", "processing")),
        *moves("before-1", (2, "processing", "memory"), worker=W),
    ]
    run = open_run(one_worker(tmp_path / "r", rows))
    found = {a["key"].split("-")[0]: a["outcome"] for a in run.attempts.to_arrow().to_pylist()}
    assert found == {
        "memory": "memory", "erred": "erred", "retry": "retried", "cancel": "released",
        "running": "running", "before": "memory",
    }  # fmt: skip


def test_transfers_that_begin_at_once_have_the_same_numbers_in_each_reading(tmp_path: Path) -> None:
    """Their order is that of their processes, and within a process that of their numbers."""
    folder = one_worker(tmp_path / "r", life("a-1", 1, 2, W))
    for i in range(7, 2, -1):
        process = Process(folder, f"worker-{i}", address=f"tcp://w:{i}")
        rows = [
            {
                "number": n, "end": "outgoing", "start": T0, "stop": T0 + 5, "peer": W,
                "worker": f"tcp://w:{i}", "total_bytes": 10 * i + n,
            }
            for n in (2, 1)
        ]  # fmt: skip
        process.write("transfer_ends", rows)
        process.end()
    for _ in range(3):
        found = open_run(folder).transfers.to_arrow()
        assert found["transfer"].to_pylist() == list(range(1, 11))
        assert found["total_bytes"].to_pylist() == [10 * i + n for i in range(3, 8) for n in (1, 2)]


def test_two_ends_of_a_transfer_are_one(tmp_path: Path) -> None:
    """A transfer that both ends recorded is one row; the same keys sent again are another."""
    folder = one_worker(tmp_path / "r", life("a-1", 1, 2, W))
    ends = {"tcp://w:2": ("incoming", W), W: ("outgoing", "tcp://w:2")}
    for i, (worker, (end, peer)) in enumerate(ends.items()):
        process = Process(folder, f"worker-{i + 5}", address=worker)
        for n in (1, 2):
            process.write(
                "transfer_ends",
                [{
                    "number": n, "end": end, "start": T0 + n * SECOND, "stop": T0 + n * SECOND + 5,
                    "worker": worker, "peer": peer, "total_bytes": 10, "n_keys": 1,
                    "compressed_bytes": 7 if end == "outgoing" else None,
                }],
            )  # fmt: skip
            process.write("transfer_end_keys", [{"number": n, "key": "a-1", "nbytes": 10}])
        if end == "outgoing":
            process.write("transfer_ends", [{
                "number": 3, "end": end, "start": T0, "stop": T0 + 9, "worker": worker,
                "peer": None, "total_bytes": 10, "n_keys": 1,
            }])  # fmt: skip
            process.write("transfer_end_keys", [{"number": 3, "key": "a-1", "nbytes": 10}])
        process.end()
    run = open_run(folder)
    seen = [
        (t["source"], t["destination"], t["seen_by"]) for t in run.transfers.to_arrow().to_pylist()
    ]
    assert seen == [(W, None, "source"), (W, "tcp://w:2", "both"), (W, "tcp://w:2", "both")]
    assert len(run.transfer_keys) == 3
    assert len(run.task("a-1").transfers) == 3


def test_clocks_of_other_hosts_are_aligned_unless_switched_off(tmp_path: Path) -> None:
    """A worker on another host is shifted by its best measurement, unless `align` is false."""
    folder = new_run(tmp_path / "r")
    Process(folder, "scheduler-1", address="tcp://s:1", host="one").end()
    worker = Process(folder, "worker-1", address=W, host="two")
    near = Process(folder, "worker-2", address="tcp://w:2", host="one")
    for process in (worker, near):
        process.write("clock_offsets", [
            {"time": T0, "offset_seconds": 9.0, "uncertainty_seconds": 1.0},
            {"time": T0, "offset_seconds": 2.0, "uncertainty_seconds": 0.001},
        ])  # fmt: skip
        process.write("worker_transitions", [{"time": T0, "worker": W, "key": "a-1"}])
        process.end()
    run, raw = open_run(folder), open_run(folder, align=False)
    shift = [
        (a["time"] - b["time"]).total_seconds()
        for a, b in zip(
            run.worker_transitions.to_arrow().to_pylist(),
            raw.worker_transitions.to_arrow().to_pylist(),
            strict=True,
        )
    ]
    assert shift == [2.0, 0.0]
    assert run.clock_offsets_ns == {"worker-1": 2 * SECOND}


def test_an_unknown_task_gets_a_suggestion(tmp_path: Path) -> None:
    """The error for an unknown key names similar keys."""
    with pytest.raises(UnknownTaskError) as caught:
        open_run(small_run(tmp_path / "r")).task("a-")
    assert "a-1" in caught.value.hint


def test_tasks_can_be_selected_and_sorted(tmp_path: Path) -> None:
    """Filters select tasks, rows are sorted with nulls last, and errors name the wrong value."""
    rows = life("a-1", 1, 2, W) + life("b-1", 1, 5, W) + moves("c-1", (1, "released", "waiting"))
    run = open_run(one_worker(tmp_path / "r", rows))
    keys = select_tasks(run, sort="compute_seconds").rows["key"].to_pylist()
    assert keys == ["b-1", "a-1", "c-1"]
    assert select_tasks(run, sort="-compute_seconds", limit=1).rows["key"].to_pylist() == ["a-1"]
    assert select_tasks(run, state="waiting").total == 1
    assert select_tasks(run, worker="w").total == 2
    with pytest.raises(UsageError, match="state nonsense"):
        select_tasks(run, state="nonsense")
    with pytest.raises(UsageError, match="No column"):
        select_tasks(run, sort="nonsense")
