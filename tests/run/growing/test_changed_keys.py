"""Keys whose derived rows change although no new row names them: of a run that grows, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.errors import InterruptedQueryError
from dask_strata.run.finalise import finalise
from dask_strata.run.growing import rows, snapshot
from dask_strata.run.growing.views import GrowingViews
from tests.support.growing import contents, differences
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run

pytestmark = pytest.mark.long

WORKER = "tcp://w:1"
MEASURED = {"time": T0, "uncertainty_seconds": 0.001}

#: Writes rows of the scheduler and the worker, and returns the parts that follow, one for a look.
Story = Callable[[Process, Process], list[Callable[[], None]]]


def late_spill(scheduler: Process, worker: Process) -> list[Callable[[], None]]:
    """A spill within an attempt arrives after it, from a worker whose clock is 10 s ahead."""
    worker.write("clock_offsets", [{**MEASURED, "offset_seconds": -10.0}])
    phases = [
        ["compute", T0 + SECOND, SECOND, None],
        ["disk-write", T0 + 2 * SECOND, SECOND, None],
    ]
    rows = life("a", 1, 4, WORKER)
    rows[-1]["startstops"] = phases
    scheduler.write("scheduler_transitions", rows)
    spill = {"time": T0 + 13 * SECOND, "worker": WORKER, "action": "spill", "seconds": 1.0}
    return [lambda: worker.write("spills", [spill])]


def cancelled(scheduler: Process, worker: Process) -> list[Callable[[], None]]:
    """The scheduler releases an attempt whose function runs on, until its worker is removed."""
    steps = [
        (1, "released", "waiting"),
        (2, "waiting", "processing"),
        (5, "processing", "released"),
    ]
    scheduler.write("scheduler_transitions", moves("a", *steps))
    begun = {"worker": WORKER, "key": "a", "start_state": "ready", "finish_state": "executing"}
    worker.write("worker_transitions", [{**begun, "time": T0 + 2 * SECOND}])
    removed = {"worker": WORKER, "action": "remove", "time": T0 + 30 * SECOND, "stimulus_id": "r"}
    return [
        lambda: scheduler.write("scheduler_transitions", life("b", 10, 20, WORKER)),
        lambda: scheduler.write("worker_events", [removed]),
    ]


def killed(scheduler: Process, worker: Process) -> list[Callable[[], None]]:
    """The cause of a worker's end, which ended an attempt, is on record later."""
    removed = {"worker": WORKER, "action": "remove", "time": T0 + 4 * SECOND, "stimulus_id": "r-4"}
    states = [(1, "released", "waiting"), (2, "waiting", "processing"), (4, "processing", "erred")]
    rows = moves("a", *states, exception="KilledWorker('a')", worker=WORKER)
    rows[-1]["stimulus_id"] = "r-4"
    scheduler.write("scheduler_transitions", rows)
    scheduler.write("worker_events", [removed])
    nanny = Process(scheduler_folder(scheduler), "nanny-1", address="tcp://n:1")
    ended = {"time": T0 + 5 * SECOND, "worker": WORKER, "action": "process-exit", "reason": "-9"}
    return [lambda: nanny.write("worker_events", [ended])]


def removed_replica(scheduler: Process, worker: Process) -> list[Callable[[], None]]:
    """The removal of a worker arrives after the release of a result that it held."""
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    held = {"worker": WORKER, "key": "a", "start_state": "executing", "finish_state": "memory"}
    freed = {"worker": WORKER, "key": "a", "start_state": "memory", "finish_state": "released"}
    moved = [{**held, "time": T0 + 2 * SECOND}, {**freed, "time": T0 + 9 * SECOND}]
    worker.write("worker_transitions", moved)
    removal = {"worker": WORKER, "action": "remove", "time": T0 + 6 * SECOND, "stimulus_id": "r"}
    return [lambda: scheduler.write("worker_events", [removal])]


def later_clock(scheduler: Process, worker: Process) -> list[Callable[[], None]]:
    """A worker arrives, and its clock is measured later."""
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    newer: list[Process] = []

    def arrive() -> None:
        newer.append(
            Process(scheduler_folder(scheduler), "worker-2", address="tcp://w:2", host="third")
        )
        held = {"worker": "tcp://w:2", "key": "b", "finish_state": "memory", "time": T0 + SECOND}
        newer[0].write("worker_transitions", [{**held, "start_state": "executing"}])
        scheduler.write("scheduler_transitions", life("b", 3, 4, "tcp://w:2"))

    return [
        arrive,
        lambda: newer[0].write("clock_offsets", [{**MEASURED, "offset_seconds": -10.0}]),
    ]


def scheduler_folder(process: Process) -> Path:
    """Return the folder of the run that a process belongs to."""
    return Path(process.sink._path).parent.parent


@pytest.mark.parametrize(
    "story",
    [
        late_spill,
        cancelled,
        killed,
        removed_replica,
        later_clock,
    ],
)
def test_rows_are_those_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Story
) -> None:
    """At each look, in all tables."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", host="here")
    worker = Process(folder, "worker-1", address=WORKER, name="w")
    added = {"time": T0, "worker": WORKER, "name": "w", "action": "add"}
    scheduler.write("worker_events", [added])
    parts = story(scheduler, worker)
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    monkeypatch.setattr(snapshot, "GROWTH", 1e9)
    run = open_run(folder)
    first = contents(run)
    for part in parts:
        part()
        run.refresh()
        now = contents(run)
        assert isinstance(run._parquet, GrowingViews)
        assert now != first
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "SMALLEST_BYTES", 1 << 40)
            then = contents(open_run(folder))
        assert differences(now, then) == []


@pytest.mark.parametrize("own", [True, False])
def test_an_interrupted_look_counts_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    """Ctrl-C in the middle of a look leaves the run readable, and is not swallowed."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    if own:
        finalise(folder)
    else:
        monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    run = open_run(folder)
    assert len(run.tasks) == 1
    scheduler.write("scheduler_transitions", life("b", 3, 4, WORKER))
    run.refresh()
    insert = rows.NewRows._insert

    def interrupted(self: Any, table: str, added: Any) -> None:
        insert(self, table, added)
        if "transitions" in table:
            raise InterruptedQueryError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(rows.NewRows, "_insert", interrupted)
        with pytest.raises(InterruptedQueryError):
            run.rows("from tasks")
    assert [row["n_attempts"] for row in run.rows("from tasks")] == [1, 1]
    assert len(run.rows("from scheduler_transitions")) == 6
    assert isinstance(run._parquet, GrowingViews)


def test_the_id_of_a_run_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """A snapshot stays in the cache folder, whatever a run received from others has as its id."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"synth"', '"../../../planted-outside"'))
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    open_run(folder).rows("from tasks")
    assert not list(tmp_path.rglob("*planted-outside*"))
    assert not list(cache.parent.parent.parent.glob("*planted-outside*"))


@pytest.mark.parametrize("place", ["parquet", "segments"])
def test_damage_is_reported_of_a_run_with_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Of its own Parquet, and of the end of a segment whose process has ended meanwhile."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    segment = folder / "segments" / "scheduler-1.seg"
    if place == "parquet":
        finalise(folder)
        scheduler.write("scheduler_transitions", life("b", 3, 4, WORKER))
        harmed = folder / "parquet" / "scheduler_transitions" / "part-0.parquet"
    else:
        before = segment.stat().st_size
        scheduler.write("scheduler_transitions", life("b", 3, 4, WORKER))
        segment.write_bytes(segment.read_bytes()[: before + 20])
    assert open_run(folder).snapshot is not None
    if place == "parquet":
        harmed.write_bytes(harmed.read_bytes()[:-40])
    else:
        monkeypatch.setattr("dask_strata.store.segments.read._SILENT_SECONDS", -1)
    findings = [f.text for f in open_run(folder).check().missing]
    assert any("scheduler_transitions" in f or "cut in the middle" in f for f in findings), findings


def test_new_rows_without_a_key_are_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a damaged record, as recorders give each transition its key: all rows are read."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("scheduler_transitions", life("a", 1, 2, WORKER))
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    run = open_run(folder)
    assert len(run.tasks) == 1
    worker = Process(folder, "worker-1", address=WORKER)
    worker.write("worker_transitions", [{"time": T0, "worker": WORKER, "finish_state": "memory"}])
    run.refresh()
    now = contents(run)
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1 << 40)
    then = contents(open_run(folder))
    assert len(then["tasks"]) == 2
    assert differences(now, then) == []
