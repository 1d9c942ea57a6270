"""`dask_strata.follow`: each row once, in the order of its process."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import dask_strata
from dask_strata.errors import StrataError, UsageError
from dask_strata.schema import RECORDED, WITHOUT_SEQ
from dask_strata.store import index as store_index
from dask_strata.store.compact import compact
from dask_strata.store.manifest import SEGMENTS, SUFFIX, Manifest
from dask_strata.stream import recorded as recorded_rows
from dask_strata.stream.batch import Batch
from dask_strata.stream.recorded import rows_of
from dask_strata.stream.tail import Tail
from tests.conftest import wait_until
from tests.support.any_runs import AnyRun, any_runs
from tests.support.following import Followed, recorded
from tests.support.growing import Replay
from tests.support.synthetic import SECOND, T0, Process, life, new_run, small_run

follow = dask_strata.follow


def facts(n: int) -> list[dict[str, Any]]:
    return [{"name": f"n-{i}", "value": str(i)} for i in range(n)]


def busy_run(folder: Path) -> Path:
    """A run whose processes write many tables, with and without numbers, in many frames."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    workers = [Process(folder, f"worker-{i}", address=f"tcp://w:{i}") for i in (1, 2)]
    for process in (scheduler, *workers):
        process.write("job", facts(3))
    for i in range(8):
        for process in (scheduler, *workers):
            process.write("overheads", [{"time": T0 + i * SECOND, "rows": i}])
        scheduler.write("scheduler_transitions", life(f"a-{i}", i, i + 1, f"tcp://w:{1 + i % 2}"))
        if i % 3 == 0:
            workers[0].write("config", facts(2))
            workers[1].write("job", facts(1))
    for process in (*workers, scheduler):
        process.end()
    return folder


def followed(folder: Path, **options: Any) -> Followed:
    found = Followed(options.get("start"))
    found.add(follow(folder, wait=False, **options))
    return found


@pytest.mark.parametrize("finalised", [False, True])
def test_all_rows_of_a_run_that_is_done(tmp_path: Path, *, finalised: bool) -> None:
    """Of its segments or its Parquet, with the numbers that the recorder gave them."""
    run = busy_run(tmp_path / "run")
    before = followed(run)
    expected = recorded(run)
    if finalised:
        compact(run, keys_per_bucket=4)
        assert not list((run / SEGMENTS).glob(f"*{SUFFIX}"))
    after = followed(run)
    assert after.contents() == recorded(run) == expected
    assert after.rows == before.rows
    for process in ("scheduler-1", "worker-1", "worker-2"):
        numbers = sorted(n for (_, p), rows in after.rows.items() if p == process for n, _ in rows)
        assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("finalised", [False, True])
def test_every_position_of_a_run_that_is_done(tmp_path: Path, *, finalised: bool) -> None:
    """The rows from a number on, also in the middle of a frame and of rows without numbers."""
    run = busy_run(tmp_path / "run")
    if finalised:
        compact(run, keys_per_bucket=4)
    whole = followed(run)
    for process, end in whole.next.items():
        for seq in {*range(0, end + 1, 3), end}:
            start = {**whole.next, process: seq}
            found = followed(run, start=start)
            expected = {
                place: rows
                for place, all_rows in whole.rows.items()
                if place[1] == process and (rows := [r for r in all_rows if r[0] >= seq])
            }
            assert found.rows == expected


def test_some_tables_only(tmp_path: Path) -> None:
    """Rows of other tables are left out, and do not change the numbers."""
    run = busy_run(tmp_path / "run")
    whole = followed(run)
    for finalised in (False, True):
        if finalised:
            compact(run)
        some = followed(run, tables=["job", "overheads"])
        expected = {p: rows for p, rows in whole.rows.items() if p[0] in {"job", "overheads"}}
        assert some.rows == expected


def test_parquet_of_an_earlier_version_has_its_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without numbers get those that no other row has: none is missing, none comes twice."""
    run = busy_run(tmp_path / "run")
    expected = recorded(run)
    compact(run)
    whole = store_index.read_index

    def earlier(*where: Any) -> Any:
        found = whole(*where)
        for segment in found.segments:
            segment.unnumbered.clear()
        return found

    monkeypatch.setattr(recorded_rows, "read_index", earlier)
    found = followed(run)
    assert found.contents() == expected
    for process in found.next:
        numbers = sorted(n for (_, p), rows in found.rows.items() if p == process for n, _ in rows)
        assert numbers == list(range(len(numbers)))


GROWTH = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.integers(1, 40)), max_size=4)


@hypothesis.settings(max_examples=8)
@hypothesis.given(run=any_runs(), growth=GROWTH, seed=st.integers(0, 99), compacted=st.booleans())
def test_a_run_that_grows_in_any_parts(
    tmp_path_factory: pytest.TempPathFactory,
    run: AnyRun,
    growth: list[tuple[float, bool, int]],
    seed: int,
    *,
    compacted: bool,
) -> None:
    """Readers that stop anywhere and continue at their position, while segments grow, with torn
    frames at their ends, and compaction in between: each row once."""
    scratch = tmp_path_factory.mktemp("grows")
    original = run.write(scratch / "run")
    expected = recorded(original)
    replay = Replay(original, scratch / "copy")
    chosen = random.Random(seed)
    one, several = Followed(), Followed()
    rows = rows_of(dask_strata.open_run(replay.folder), RECORDED, {})
    for share, torn, limit in sorted(growth):
        replay.grow(share, chosen)
        if torn:
            replay.tear(chosen)
        one.add(rows.look())
        several.add(follow(replay.folder, start=several.next, wait=False), limit)
        if compacted:
            compact(replay.folder)  # the processes are alive: no segment is removed
    replay.grow(1, chosen)
    if compacted:
        compact(replay.folder, keys_per_bucket=2)
        assert followed(replay.folder).contents() == expected
    one.add(rows.look())
    several.add(follow(replay.folder, start=several.next, wait=False))
    assert one.contents() == expected
    assert several.contents() == expected


def test_a_frame_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    """Every byte of it may be missing: nothing of it is yielded, and nothing is skipped."""
    run = small_run(tmp_path / "run")
    path = run / SEGMENTS / f"worker-1{SUFFIX}"
    data = path.read_bytes()
    path.write_bytes(b"")
    tail = Tail(run, Manifest.read(run).run_id, "worker-1", list(RECORDED), 0)
    found = Followed()
    for byte in range(len(data)):
        with path.open("ab") as file:
            file.write(data[byte : byte + 1])
        if tail.has_more():
            found.add(tail.read())
    assert tail.damaged_bytes == 0
    assert {p: rows for p, rows in recorded(run).items() if p[1] == "worker-1"} == found.contents()


def test_a_frame_is_waited_for_after_a_long_silence(tmp_path: Path) -> None:
    """A process on another host that counts as dead may go on: its rows are not skipped."""
    run = small_run(tmp_path / "run")
    path = run / SEGMENTS / f"worker-1{SUFFIX}"
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    os.utime(path, (T0 // SECOND, T0 // SECOND))
    tail = Tail(run, Manifest.read(run).run_id, "worker-1", list(RECORDED), 0)
    found = Followed()
    for _ in range(2):
        found.add(tail.read())
        assert tail.state == "cut"
        assert not tail.has_more()
    path.write_bytes(data)
    assert tail.has_more()
    found.add(tail.read())
    assert {p: rows for p, rows in recorded(run).items() if p[1] == "worker-1"} == found.contents()


def test_a_damaged_frame_in_between_is_skipped(tmp_path: Path) -> None:
    """The numbers show the gap, and the rows after it are there."""
    run = busy_run(tmp_path / "run")
    path = run / SEGMENTS / f"worker-1{SUFFIX}"
    whole = followed(run)
    data = bytearray(path.read_bytes())
    data[-400] ^= 0xFF  # the header is the most of it
    path.write_bytes(bytes(data))
    found = followed(run)
    assert found.contents() == recorded(run)
    kept = {n for (_, p), rows in found.rows.items() if p == "worker-1" for n, _ in rows}
    assert 0 < whole.next["worker-1"] - len(kept) < 5
    assert max(kept) == whole.next["worker-1"] - 1


def test_a_killed_process_ends_the_wait(tmp_path: Path) -> None:
    """Its torn frame will never be whole: the iterator ends with the rows before it."""
    run = busy_run(tmp_path / "run")
    path = run / SEGMENTS / f"worker-1{SUFFIX}"
    path.write_bytes(path.read_bytes()[:-3])  # its process has the pid 0: nothing is alive
    old = time.time() - 1000
    os.utime(path, (old, old))
    found = Followed()
    found.add(follow(run))
    assert found.contents() == recorded(run)


def test_compaction_while_it_is_followed(tmp_path: Path) -> None:
    """Segments vanish after the first batches: the Parquet has the rows that follow."""
    run = busy_run(tmp_path / "run")
    expected = followed(run)
    for kept in (True, False):
        copy = Path(shutil.copytree(run, tmp_path / f"copy-{kept}"))
        rows = rows_of(dask_strata.open_run(copy), RECORDED, {"worker-1": 7})
        found = Followed({"worker-1": 7})
        looked = rows.look()
        found.add([next(looked) for _ in range(3)])
        if not kept:
            recorded_rows._OPEN_FILES, before = 0, recorded_rows._OPEN_FILES
            rows = rows_of(dask_strata.open_run(copy), RECORDED, found.next)
            recorded_rows._OPEN_FILES = before
            looked = rows.look()
            found.add([next(looked)])
        compact(copy)
        assert not list((copy / SEGMENTS).glob(f"*{SUFFIX}"))
        found.add(looked)
        found.add(rows.look())
        for place, all_rows in expected.rows.items():
            wanted = [r for r in all_rows if place[1] != "worker-1" or r[0] >= 7]
            assert found.rows.get(place, []) == wanted


@pytest.mark.parametrize("imported", [False, True])
def test_a_damaged_table_is_an_error_after_all_other_rows(
    tmp_path: Path, strata: Callable[..., Any], *, imported: bool
) -> None:
    """Neither `follow` nor `dask-strata stream` ends as if all rows had been there."""
    run, stream = busy_run(tmp_path / "run"), tmp_path / "rows.jsonl"
    compact(run)
    if imported:
        facts = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**facts, "imported_from": "files"}))
    whole = len(list(dask_strata.follow(run)))
    [path, *_] = (run / "parquet" / "scheduler_transitions").iterdir()
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    found: list[Batch] = []
    with pytest.raises(StrataError, match="rows of scheduler_transitions are missing"):
        found.extend(dask_strata.follow(run))  # keeps what was yielded before the error
    assert 0 < len(found) < whole
    assert not any(batch.table == "scheduler_transitions" for batch in found)
    assert list(dask_strata.follow(run, ["overheads"]))
    done = strata("stream", run, f"file:{stream}")
    assert done.returncode == 1
    assert " rows sent" in done.stdout
    assert "rows of scheduler_transitions are missing" in done.stderr


def test_it_waits_for_rows_and_ends_with_the_recording(tmp_path: Path) -> None:
    """Rows of processes that appear later, too."""
    run = new_run(tmp_path / "run")
    found = Followed()
    done: list[Any] = []

    def read() -> None:
        try:
            found.add(follow(run))
            done.append("ended")
        except Exception as error:  # noqa: BLE001  shown by the test
            done.append(error)

    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    reader = threading.Thread(target=read)
    reader.start()
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    scheduler.write("overheads", [{"time": T0}])
    wait_until(lambda: len(found.rows.get(("overheads", "scheduler-1"), ())) == 1)
    worker = Process(run, "worker-1", address="tcp://w:1")
    worker.write("overheads", [{"time": T0}])
    wait_until(lambda: len(found.rows.get(("overheads", "worker-1"), ())) == 1)
    worker.end()
    assert not done
    scheduler.end()
    reader.join(30)
    assert done == ["ended"]
    assert found.contents() == recorded(run)


def test_attempts_are_yielded_once_when_they_are_final(tmp_path: Path) -> None:
    """One that ended before all processes had written later rows; the rest at the end."""
    run = new_run(tmp_path / "run")
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    scheduler.write("scheduler_transitions", life("a", 1, 2, "tcp://w:1"))
    now = (time.time_ns() - T0) / SECOND
    batches = follow(run, ["attempts"])
    scheduler.write("scheduler_transitions", life("late", now - 0.2, now + 3, "tcp://w:1"))
    first = next(batches)
    assert first.rows["key"].to_pylist() == ["a"]
    assert (first.process, first.first_seq, first.last_seq) == (None, 0, 0)
    scheduler.end()
    rest = [row for batch in batches for row in batch.rows.to_pylist()]
    assert [row["key"] for row in rest] == ["late"]
    expected = dask_strata.open_run(run).attempts.to_arrow().to_pylist()
    assert [*first.rows.to_pylist(), *rest] == expected


def test_derived_tables_of_a_run_that_is_done(tmp_path: Path) -> None:
    """All rows, in the order of the table."""
    run = busy_run(tmp_path / "run")
    for name in ("tasks", "attempts", "workers", "transfers"):
        rows = [row for batch in follow(run, [name]) for row in batch.rows.to_pylist()]
        assert rows == dask_strata.open_run(run)[name].to_arrow().to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {"tables": ["nope"]},
        {"start": {"worker-1": -1}},
        {"start": {"../x": 1}},
        {"start": {"worker-1": True}},
    ],
)
def test_wrong_calls(tmp_path: Path, options: dict[str, Any]) -> None:
    """Each is refused before the first row."""
    run = small_run(tmp_path / "run")
    with pytest.raises(UsageError):
        follow(run, **options)
    with pytest.raises(StrataError):
        follow(tmp_path / "none")


def test_a_run_without_segments_is_counted(tmp_path: Path) -> None:
    """As an imported one: its rows have no numbers over all tables."""
    run = busy_run(tmp_path / "run")
    compact(run)
    index = run / "parquet" / "index.json"
    facts = json.loads(index.read_text())
    facts["segments"] = []
    index.write_text(json.dumps(facts))
    found = followed(run)
    assert found.contents() == recorded(run)
    middle = {process: n // 2 for process, n in found.next.items()}
    later = followed(run, start=middle)
    assert later.rows == {
        place: rows
        for place, all_rows in found.rows.items()
        if (rows := [r for r in all_rows if r[0] >= middle[str(place[1])]])
    }


def test_batches_are_in_memory_a_few_at_a_time(tmp_path: Path) -> None:
    """A reader that takes one batch has not read the whole segment."""
    run = new_run(tmp_path / "run")
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    for i in range(60):
        scheduler.write("overheads", [{"time": T0 + j, "rows": i} for j in range(1000)])
    scheduler.end()
    found: Iterator[Batch] = follow(run, ["overheads"], wait=False)
    sizes = [len(batch.rows) for batch in found]
    assert sum(sizes) == 60_000
    assert max(sizes) < 20_000
    assert "overheads" not in WITHOUT_SEQ
