"""A run that is still being recorded: a further look reads only what is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.run.growing import snapshot
from dask_strata.store.manifest import SEGMENTS, SUFFIX
from dask_strata.store.segments import read
from tests.support.growing import contents, differences
from tests.support.synthetic import Process, life, new_run

pytestmark = pytest.mark.long


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The frames that were decoded."""
    found: list[Any] = []
    decode = read.decode

    def counting(body: Any, *rest: Any) -> Iterator[Any]:
        found.append(body)
        return decode(body, *rest)

    monkeypatch.setattr(read, "decode", counting)
    return found


def test_a_further_look_reads_only_new_rows(tmp_path: Path, frames: list[Any]) -> None:
    """Frames that were read are not decoded again; all tables have the old and the new rows."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    for number in range(5):
        process.write("scheduler_transitions", life(f"a-{number}", number, number + 1, "tcp://w:1"))
    run = open_run(folder)
    assert run.state == "recording"
    assert len(run.tasks) == 5
    frames.clear()
    process.write("scheduler_transitions", life("b", 8, 9, "tcp://w:1"))
    worker = Process(folder, "worker-2")
    worker.write("job", [{"name": "a", "value": "1"}])
    assert run.refresh()
    assert len(run.tasks) == 6
    assert run.job == {"worker-2": {"a": "1"}}
    n = len(frames)  # those of the two writes
    assert 0 < n <= 3
    assert not run.refresh()
    assert len(frames) == n
    assert run.tasks.to_arrow().equals(open_run(folder).tasks.to_arrow())


def test_a_frame_that_was_being_written_is_read_later(tmp_path: Path) -> None:
    """A look in the middle of a write neither loses rows nor reports damage."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("scheduler_transitions", life("a", 1, 2, "tcp://w:1"))
    path = folder / "segments" / "scheduler-1.seg"
    before = path.stat().st_size
    process.write("scheduler_transitions", life("b", 3, 4, "tcp://w:1"))
    whole = path.read_bytes()
    path.write_bytes(whole[: before + 20])
    run = open_run(folder)
    assert len(run.tasks) == 1
    path.write_bytes(whole)
    assert run.refresh()
    assert len(run.tasks) == 2
    assert len(run.losses.to_arrow()) == 0


def test_a_run_that_is_compacted_meanwhile_is_read_anew(tmp_path: Path) -> None:
    """No row is there twice."""
    from dask_strata.run.finalise import finalise

    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("scheduler_transitions", life("a", 1, 2, "tcp://w:1"))
    run = open_run(folder)
    assert len(run.tasks) == 1
    finalise(folder)
    process.write("scheduler_transitions", life("b", 3, 4, "tcp://w:1"))
    assert run.refresh()
    assert [row["key"] for row in run.tasks.to_arrow().to_pylist()] == ["a", "b"]


def test_a_further_look_starts_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a segment that grew, only its header and the new frames are read; of others, nothing."""
    folder = new_run(tmp_path / "r")
    process, other = Process(folder, "scheduler-1"), Process(folder, "worker-2")
    for number in range(9):
        process.write("scheduler_transitions", life(f"a-{number}", number, number + 1, "tcp://w:1"))
        other.write("job", [{"name": "a", "value": str(number)}])
    run = open_run(folder)
    assert len(run.tasks) == 9
    unpacked = []
    unpack = read.unpack
    monkeypatch.setattr(read, "unpack", lambda *a: unpacked.append(1) or unpack(*a))
    starts = []
    payloads = read.payloads
    monkeypatch.setattr(read, "payloads", lambda *a: starts.append(a[1:]) or payloads(*a))
    size = (folder / "segments" / "scheduler-1.seg").stat().st_size
    process.write("scheduler_transitions", life("b", 10, 11, "tcp://w:1"))
    run.refresh()
    assert len(run.tasks) == 10
    assert starts == [(), (size,)]
    assert len(unpacked) == 2


def one_task(folder: Path) -> tuple[Run, Process]:
    """Return a run with one task, whose table of tasks was read, and its process."""
    process = Process(new_run(folder), "scheduler-1")
    process.write("scheduler_transitions", life("a", 1, 2, "tcp://w:1"))
    run = open_run(folder)
    assert len(run.tasks.to_arrow()) == 1
    return run, process


def end(process: Process) -> None:
    """Write another task and the end of the process."""
    process.write("scheduler_transitions", life("b", 3, 4, "tcp://w:1"))
    process.end()


def test_the_last_rows_of_a_process_that_is_gone_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that wrote its last rows and ended since the record was read was not killed."""
    alive = True
    monkeypatch.setattr(read, "_alive", lambda _: alive)
    run, process = one_task(tmp_path / "r")
    assert run.state == "recording"
    end(process)
    alive = False
    assert run.state == "complete"
    assert len(run.tasks) == 2


def test_a_run_that_nobody_looked_at_for_long_is_read_further(tmp_path: Path) -> None:
    """The process is on another host: when it wrote last is known by its file alone."""
    run, process = one_task(tmp_path / "r")
    [segment] = run.segments
    segment.modified -= 2 * read._SILENT_SECONDS
    process.write("scheduler_transitions", life("b", 3, 4, "tcp://w:1"))
    assert len(run.tasks) == 2
    assert run.state == "recording"


def test_a_refresh_that_was_interrupted_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C the next refresh reads the new rows, also after the end of the recording."""
    run, process = one_task(tmp_path / "r")
    end(process)

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dask_strata.run.run.read_more", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.refresh()
    assert run.refresh()
    assert run.state == "complete"
    assert differences(contents(run), contents(open_run(run.path))) == []


def test_no_table_is_older_than_a_record_that_was_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If files disappear while they are in use, all is read into memory: also rows that are new."""
    monkeypatch.setattr(snapshot, "SMALLEST_BYTES", 1)
    run, process = one_task(tmp_path / "r")
    assert run.snapshot is not None
    end(process)
    Process(run.path, "worker-1", address="tcp://w:1", name="w").end()
    shutil.rmtree(run.snapshot)
    assert len(run.rows("from scheduler_transitions")) == 6
    run.refresh()
    assert len(run.tasks) == 2
    assert differences(contents(run), contents(open_run(run.path))) == []


def test_a_segment_that_was_empty_is_no_loss_once_it_has_rows(tmp_path: Path) -> None:
    """A process makes the file, and writes to it at its first flush."""
    run, _ = one_task(tmp_path / "r")
    name = "worker-1"
    file = run.path / SEGMENTS / f"{name}{SUFFIX}"
    file.touch()
    assert run.refresh()
    assert [row["reason"] for row in run.losses.to_arrow().to_pylist()] == ["the file is empty"]
    file.unlink()
    Process(run.path, name).write("job", [{"name": "a", "value": "1"}])
    assert run.refresh()
    assert run.job == {name: {"a": "1"}}
    assert len(run.losses) == 0
