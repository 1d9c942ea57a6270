"""A run that is still being recorded: a further look reads only what is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.store.segments import read
from tests.support.synthetic import Process, life, new_run


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
