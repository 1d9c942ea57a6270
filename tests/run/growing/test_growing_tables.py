"""A run that grows: its tables are those of all rows, though only those of changed keys are new."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.run import Run
from dask_strata.run.derived import STORED, definitions, versions
from dask_strata.run.finalise import finalise
from dask_strata.run.growing import snapshot
from dask_strata.run.growing.sessions import IMPORTED, is_by_key
from dask_strata.run.growing.views import GrowingViews
from dask_strata.schema import DERIVED, TABLES
from dask_strata.store.manifest import MANIFEST
from dask_strata.store.segments import read
from tests.support.eventful import record_eventful
from tests.support.growing import Replay, contents, differences
from tests.support.synthetic import SECOND, T0, Process, life, new_run

pytestmark = pytest.mark.long

WORKER = "tcp://w:1"


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run with much that happens; as segments."""
    return record_eventful(tmp_path_factory.mktemp("eventful"))


@pytest.fixture
def from_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the size from which a run that is not finalised has a snapshot."""

    def set_size(size: int) -> None:
        monkeypatch.setattr(snapshot, "SMALLEST_BYTES", size)

    return set_size


@pytest.fixture(autouse=True)
def one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the first snapshot of a run however much it grows."""
    monkeypatch.setattr(snapshot, "GROWTH", 1e9)


def in_memory(folder: Path, from_bytes: Callable[[int], None]) -> Run:
    """Open a run that is read as a whole."""
    from_bytes(1 << 40)
    return open_run(folder)


@pytest.mark.parametrize(
    ("seed", "n_looks"),
    [(1, 3), *(pytest.param(n, 6, marks=pytest.mark.release) for n in (2, 3, 4))],
)
def test_tables_are_those_of_all_rows(
    eventful: Path, tmp_path: Path, from_bytes: Callable[[int], None], seed: int, n_looks: int
) -> None:
    """At each look, also where a process's rows arrive much later than those of the others."""
    order = random.Random(seed)
    replay = Replay(eventful, tmp_path / "r")
    replay.grow(1 / n_looks, order)
    from_bytes(1)
    run = open_run(replay.folder)
    assert run.snapshot is not None
    for number in range(1, n_looks + 1):
        replay.grow(number / n_looks, order)
        run.refresh()
        now = contents(run)
        assert number == 1 or isinstance(run._parquet, GrowingViews)
        then = contents(in_memory(replay.folder, from_bytes))
        assert differences(now, then) == []
        from_bytes(1)


@pytest.mark.release
def test_tables_that_were_not_looked_at_meanwhile(
    eventful: Path, tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """A table that some looks did not need has all that changed since it was computed last."""
    order = random.Random(7)
    replay = Replay(eventful, tmp_path / "r")
    replay.grow(0.3, order)
    from_bytes(1)
    run = open_run(replay.folder)
    assert run.snapshot is not None
    for share in (0.45, 0.6, 0.75, 0.9):
        replay.grow(share, order)
        run.refresh()
        for name in order.sample(sorted(DERIVED), 6):
            run[name].to_arrow()
    replay.grow(1, order)
    run.refresh()
    now = contents(run)
    assert differences(now, contents(in_memory(replay.folder, from_bytes))) == []


def test_users_queries_have_new_rows(tmp_path: Path, from_bytes: Callable[[int], None]) -> None:
    """SQL over recorded and derived tables, in one process and in a new one."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    run = open_run(folder)
    query = "select key, n_attempts, state from tasks order by key"
    assert len(run.sql(query)) == 1
    process.write("scheduler_transitions", life("b", 3, 4, WORKER))
    for each in (run, open_run(folder)):
        assert each.sql(query).to_arrow().to_pylist() == [
            {"key": "a", "n_attempts": 1, "state": "memory"},
            {"key": "b", "n_attempts": 1, "state": "memory"},
        ]
        rows = each.sql("select count(*) as n from scheduler_transitions").to_arrow().to_pylist()
        assert rows == [{"n": 6}]
        assert isinstance(each._parquet, GrowingViews)
        assert [row["attempt"] for row in each.task("b").attempts] == [2]


def one_task(folder: Path) -> tuple[Path, Process]:
    """Make a run with one task that is still being recorded."""
    run = new_run(folder / "r")
    process = Process(run, "scheduler-1")
    process.write("scheduler_transitions", life("a", 1, 2, WORKER))
    return run, process


def test_a_task_under_way_ends(tmp_path: Path, from_bytes: Callable[[int], None]) -> None:
    """Its attempt is computed again at each look, and has its number."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    rows = life("b", 3, 9, WORKER)
    process.write("scheduler_transitions", rows[:2])
    run = open_run(folder)
    outcomes = "select key, attempt, outcome from attempts order by attempt"
    running = [("a", 1, "memory"), ("b", 2, "running")]
    assert [tuple(row.values()) for row in run.rows(outcomes)] == running
    process.write("scheduler_transitions", life("c", 4, 5, WORKER))
    run.refresh()
    assert [tuple(row.values()) for row in run.rows(outcomes)] == [*running, ("c", 3, "memory")]
    process.write("scheduler_transitions", rows[2:])
    run.refresh()
    assert [row["outcome"] for row in run.rows(outcomes)] == ["memory"] * 3


def test_a_new_process_reads_only_new_frames(
    tmp_path: Path, from_bytes: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the snapshot come from its Parquet."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    assert len(open_run(folder).tasks) == 1
    process.write("scheduler_transitions", life("b", 3, 4, WORKER))
    found = []
    decode = read.decode
    monkeypatch.setattr(read, "decode", lambda *a: found.append(a) or decode(*a))
    assert len(open_run(folder).tasks) == 2
    assert len(found) == 1


def test_another_run_in_its_place_is_read_anew(
    tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """A snapshot belongs to the bytes of segments, not to a path or an id."""
    from_bytes(1)
    folder, _ = one_task(tmp_path)
    assert [row["key"] for row in open_run(folder).rows("from tasks")] == ["a"]
    first = open_run(folder).snapshot
    folder.rename(tmp_path / "old")
    run = new_run(tmp_path / "r")
    process = Process(run, "scheduler-1")
    process.write("scheduler_transitions", life("z", 1, 2, WORKER))
    process.write("scheduler_transitions", life("y", 3, 4, WORKER))
    again = open_run(folder)
    assert sorted(row["key"] for row in again.rows("from tasks")) == ["y", "z"]
    assert again.snapshot != first


def test_a_snapshot_by_other_definitions_is_not_used(
    tmp_path: Path, from_bytes: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made anew."""
    from_bytes(1)
    folder, _ = one_task(tmp_path)
    first = open_run(folder).snapshot
    assert open_run(folder).snapshot == first
    present = snapshot.versions()
    monkeypatch.setattr(snapshot, "versions", lambda: {**present, "tasks": "better"})
    assert open_run(folder).snapshot != first


def test_without_a_cache_folder_a_run_is_read_in_memory(
    tmp_path: Path, from_bytes: Callable[[int], None], cache: Path
) -> None:
    """The answers are the same."""
    from_bytes(1)
    folder, _ = one_task(tmp_path)
    cache.parent.mkdir(parents=True)
    cache.write_text("no folder")
    run = open_run(folder)
    assert [row["key"] for row in run.rows("from tasks")] == ["a"]
    assert run.snapshot is None


def test_a_snapshot_that_disappears_is_not_missed(
    tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """The run is read from its own files."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    run = open_run(folder)
    assert run.snapshot is not None
    shutil.rmtree(run.snapshot)
    assert [row["key"] for row in run.rows("from tasks")] == ["a"]
    process.write("scheduler_transitions", life("b", 3, 4, WORKER))
    run.refresh()
    assert len(run.tasks) == 2


@pytest.mark.release
def test_old_snapshots_are_removed(
    tmp_path: Path, from_bytes: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """The last one and the one before stay, as a reader may use that."""
    from_bytes(1)
    monkeypatch.setattr(snapshot, "GROWTH", 0)
    folder, process = one_task(tmp_path)
    for number in range(4):
        process.write("scheduler_transitions", life(f"b-{number}", 3, 4, WORKER))
        assert len(open_run(folder).tasks) == number + 2
    assert len(list(cache.glob(f"*/*/{MANIFEST}"))) == 2


def test_a_large_run_that_ended_is_read_from_a_snapshot(
    tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """It was not finalised, because its process was killed, for example."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    process.end()
    run = open_run(folder)
    assert len(run.tasks) == 1
    assert run.snapshot is not None
    assert run.state == "complete"
    assert run._stored == STORED
    assert not (folder / "parquet").exists()


def test_each_table_that_others_read_as_a_whole_is_kept() -> None:
    """A growing run computes others for changed keys only, so that nothing could read all rows."""
    for definition in definitions().values():
        whole = definition.depends_on - (definition.by_key if is_by_key(definition.name) else set())
        inputs = {n for n in whole & definitions().keys() if is_by_key(n)} - IMPORTED.keys()
        assert inputs <= STORED, definition.name


def test_tables_by_key_have_a_key(tmp_path: Path, from_bytes: Callable[[int], None]) -> None:
    """Their rows are replaced by it."""
    from_bytes(1)
    folder, _ = one_task(tmp_path)
    run = open_run(folder)
    for name in sorted(STORED - TABLES.keys() | DERIVED.keys()):
        if is_by_key(name):
            assert "_key" in run.arrow(f"from {name} limit 0").column_names, name


def test_times_of_another_clock_stay_aligned(
    tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """New rows of a process have the offset that its rows in the snapshot have."""
    from_bytes(1)
    folder, scheduler = one_task(tmp_path)
    other = Process(folder, "worker-1", address=WORKER, host="another", name="w")
    measured = {"time": T0, "offset_seconds": 5.0, "uncertainty_seconds": 0.001}
    other.write("clock_offsets", [measured])
    other.write("worker_transitions", [{"time": T0, "worker": WORKER, "key": "a"}])
    run = open_run(folder)
    assert run.snapshot is not None
    second = Process(folder, "worker-2", address="tcp://w:2", host="third", name="v")
    second.write("clock_offsets", [{**measured, "offset_seconds": -3.0}])
    for process, worker in ((other, WORKER), (second, "tcp://w:2")):
        process.write("worker_transitions", [{"time": T0 + 1, "worker": worker, "key": "b"}])
    scheduler.write("scheduler_transitions", life("b", 3, 4, WORKER))
    run.refresh()
    now = contents(run)
    assert isinstance(run._parquet, GrowingViews)
    assert run.clock_offsets_ns == {"worker-1": 5 * SECOND, "worker-2": -3 * SECOND}
    assert differences(now, contents(in_memory(folder, from_bytes))) == []


def test_unfinished_snapshots_are_removed(
    tmp_path: Path, from_bytes: Callable[[int], None]
) -> None:
    """A process that was killed left its folder; one that another process writes to stays."""
    from_bytes(1)
    folder, process = one_task(tmp_path)
    first = open_run(folder).snapshot
    assert first is not None
    old, present = first.with_name(".old"), first.with_name(".present")
    for each in (old, present):
        (each / "parquet").mkdir(parents=True)
    os.utime(old / "parquet", (1, 1))
    process.write("scheduler_transitions", life("b", 3, 4, WORKER))
    shutil.rmtree(first)
    assert open_run(folder).snapshot != first
    assert not old.exists()
    assert present.exists()


def test_a_finalised_run_by_other_definitions_that_grows_is_read_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempts keep their numbers."""
    folder, process = one_task(tmp_path)
    finalise(folder)
    process.write("scheduler_transitions", life("b", 3, 4, WORKER))
    present = versions()
    outdated = {**present, "_attempt_numbers": "better"}
    monkeypatch.setattr("dask_strata.run.stored.views.versions", lambda: outdated)
    run = open_run(folder)
    assert [row["attempt"] for row in run.rows("from attempts order by attempt")] == [1, 2]
    assert run._parquet is None
    monkeypatch.undo()
    run = open_run(folder)
    assert [row["attempt"] for row in run.rows("from attempts order by attempt")] == [1, 2]
    assert isinstance(run._parquet, GrowingViews)
