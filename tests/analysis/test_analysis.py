"""Answers on synthetic runs whose answer is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.breakdown import KINDS, breakdown, prefixes
from dask_strata.analysis.check.check import check
from dask_strata.analysis.list import list_runs
from dask_strata.analysis.map import metadata_map
from dask_strata.analysis.story import story
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.tasks import select_tasks
from dask_strata.errors import UnknownTaskError, UsageError
from dask_strata.schema import TABLES, wire_key
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run, small_run

W = "tcp://w:1"


def one_worker(folder: Path, rows: list[dict], *, nthreads: int = 2) -> Path:
    """Make a run of 10 s with one worker, from the scheduler's transitions alone."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=W, name="w", nthreads=nthreads).end()
    return folder


def test_worker_seconds_add_up(tmp_path: Path) -> None:
    """Two tasks of 4 s on two threads in 10 s are 8 s of compute and 12 s of idleness."""
    spent = breakdown(open_run(small_run(tmp_path / "r")))
    assert spent.total_seconds == pytest.approx(20)
    assert spent.seconds["compute"] == pytest.approx(8)
    assert spent.seconds["idle"] == pytest.approx(12)
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)
    assert tuple(spent.seconds) == KINDS


def intervals(*parts: tuple[str, float, float]) -> list[list]:
    """Return startstops: action, from, to in seconds."""
    return [[action, T0 + int(a * SECOND), int((b - a) * SECOND), None] for action, a, b in parts]


def test_each_moment_of_an_action_counts_once(tmp_path: Path) -> None:
    """Intervals of one action that overlap are not added up; those of others are apart."""
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
    assert spent.seconds == pytest.approx(
        {"compute": 9.5, "transfer": 3, "deserialize": 1, "spill": 0.5, "idle": 6}
    )


def test_more_tasks_than_threads_share_the_threads(tmp_path: Path) -> None:
    """Three tasks at once on one thread cannot have computed more than the thread's time."""
    rows = [r for k in "abc" for r in life(f"{k}-1", 2, 6, W)]
    spent = breakdown(open_run(one_worker(tmp_path / "r", rows, nthreads=1)))
    assert spent.seconds["compute"] == pytest.approx(4)
    assert sum(spent.seconds.values()) == pytest.approx(10)


def test_a_key_that_lives_twice_is_two_rows(tmp_path: Path) -> None:
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
    """Each way in which a stay on a worker ends has a name of its own."""
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


def test_two_ends_of_a_transfer_are_one(tmp_path: Path) -> None:
    """A transfer that both ends saw is one row; the same keys sent again are another."""
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


def test_clocks_of_other_hosts_are_aligned_and_can_be_left(tmp_path: Path) -> None:
    """A worker on another host is shifted by its best measurement, unless asked not to be."""
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


def test_check_finds_each_kind_of_gap(tmp_path: Path) -> None:
    """Counters that disagree, losses, workers without a record and cuts are all named."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    scheduler.write("scheduler_transitions", life("a-1", 1, 2, W))
    scheduler.write("submissions", [{"time": T0, "submission": "s", "n_tasks": 9_000}])
    scheduler.write("graph_tasks", [{"submission": "s", "key": "a-1", "prefix": "a"}])
    scheduler.write("counters", [
        {"time": T0, "name": "scheduler.transitions", "value": 5, "recorded": 3, "final": True}
    ])  # fmt: skip
    scheduler.write("losses", [{"time": T0, "what": "rows", "count": 7, "reason": "disk full"}])
    os.utime(folder / "segments" / "scheduler-1.seg", (0, 0))
    found = check(open_run(folder))
    assert not found.ok
    text = "\n".join(f.text for f in found.missing)
    for part in (
        "counted 5",
        "3 are on record",
        "7 rows: disk full",
        W,
        "cut off",
        "8,999 of 9,000",
    ):
        assert part in text


def test_an_empty_run_has_answers(tmp_path: Path) -> None:
    """A run that was cut before anything happened can be summarised, mapped and listed."""
    folder = new_run(tmp_path / "runs" / "r")
    run = open_run(folder)
    summary = summarize(run)
    assert (summary.n_tasks, summary.state) == (0, "cut")
    assert not summary.check.ok
    assert all(cell.total == 0 for cell in metadata_map(run))
    assert list_runs(tmp_path / "runs").to_pylist()[0]["tasks"] == 0


def test_every_table_is_in_a_cell_of_the_map_or_about_the_record(tmp_path: Path) -> None:
    """No table hides from the map, except those about the record itself, or about imports."""
    shown = {
        name for cell in metadata_map(open_run(small_run(tmp_path / "r"))) for name in cell.rows
    }
    assert {n for n, t in TABLES.items() if t.layer != "record" and not t.imported} == shown


def test_the_first_screen_says_what_stands_out(tmp_path: Path) -> None:
    """Failures, retries and stragglers are found, and counted once."""
    rows = [r for i in range(5) for r in life(f"p-{i}", 1, 1.1, W)]
    rows += life("p-9", 2, 9, W)
    rows += moves(
        "bad-1", (3, "waiting", "processing"), (4, "processing", "erred"), exception="E('x')"
    )
    rows += moves("late-1", (4, "waiting", "erred"), exception="E('x')", blame="bad-1")
    run_folder = one_worker(tmp_path / "r", rows)
    summary = summarize(open_run(run_folder))
    assert summary.n_erred == 2
    assert [(f.count, f.exception, f.example) for f in summary.failures] == [(1, "E('x')", "bad-1")]
    assert any("times the median" in f.text for f in summary.findings)
    assert {p.prefix for p in prefixes(open_run(run_folder))} == {"(unknown)"}


def test_the_same_text_of_two_keys_is_two_tasks(tmp_path: Path) -> None:
    """`('x', 0)` as text and as tuple are two tasks with two stories, and asking says so."""
    tuple_key = wire_key(("x", 0))
    rows = life("('x', 0)", 1, 2, W) + life(tuple_key, 3, 4, W)
    run = open_run(one_worker(tmp_path / "r", rows))
    assert len(run.tasks) == 2
    assert run.task(("x", 0)).key_type == "tuple"
    with pytest.raises(UnknownTaskError, match="More than one"):
        run.task("('x', 0)")
    one, other = (run.task("('x', 0)", key_type=k) for k in ("str", "tuple"))
    assert len(story(one).events) == len(story(other).events) == 3
    assert story(one).events[0].time < story(other).events[0].time


def test_an_unknown_task_gets_a_suggestion(tmp_path: Path) -> None:
    """Asking for a key that is not there names keys that are like it."""
    with pytest.raises(UnknownTaskError) as caught:
        open_run(small_run(tmp_path / "r")).task("a-")
    assert "a-1" in caught.value.hint


def test_tasks_can_be_chosen_and_sorted(tmp_path: Path) -> None:
    """Filters keep what they say, an order is kept with nulls last, and mistakes are named."""
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


def test_tasks_that_never_finished_are_told(tmp_path: Path) -> None:
    """Tasks that were let go before they had a result count, data that was scattered does not."""
    rows = [
        *life("done-1", 1, 2, W),
        *moves("gone-1", (1, "released", "waiting"), (3, "waiting", "released")),
        *moves("given-1", (1, "memory", "released"), (2, "released", "forgotten")),
    ]
    summary = summarize(open_run(one_worker(tmp_path / "r", rows)))
    assert (summary.n_tasks, summary.n_unfinished, summary.n_erred) == (3, 1, 0)
