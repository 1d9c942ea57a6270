"""Sinks: frames are written whole or not at all, and dropped rows are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata.store.segments.frames import Encoder
from dask_strata.store.sinks import BACKLOG_BYTES, CallSink, FileSink, RelaySink


def test_a_file_sink_reports_a_removed_file_and_drops_within_a_bound(tmp_path: Path) -> None:
    """After its file was removed, a sink keeps a bounded backlog and counts the other rows."""
    sink = FileSink(tmp_path / "x.seg", b"header")
    sink.write(b"first", 0)
    assert sink.error is None
    (tmp_path / "x.seg").unlink()
    for _ in range(10):
        sink.write(b"\0" * (BACKLOG_BYTES // 4), 7)
    assert "removed" in sink.error
    assert sink.dropped_rows == 7 * 6
    sink.close()
    assert sink.dropped_rows == 7 * 10


def test_a_call_sink_keeps_frames_until_they_can_be_sent() -> None:
    """Frames that cannot be sent are sent later, in order, and none is dropped meanwhile."""
    sent, broken = [], [True]

    def send(frame: bytes) -> None:
        if broken:
            raise ConnectionError("no comm")
        sent.append(frame)

    sink = CallSink(send, b"h")
    sink.write(b"1", 1)
    assert "no comm" in sink.error
    broken.clear()
    sink.write(b"2", 1)
    assert sent == [b"h", b"1", b"2"]
    assert (sink.error, sink.dropped_rows) == (None, 0)


def test_a_file_sink_refuses_an_existing_segment(tmp_path: Path) -> None:
    """A process never writes to a segment that exists already."""
    FileSink(tmp_path / "x.seg", b"one").close()
    with pytest.raises(FileExistsError):
        FileSink(tmp_path / "x.seg", b"two")


def test_relayed_frames_go_to_files_of_processes_only(tmp_path: Path) -> None:
    """A name that could lead out of the folder is refused before it becomes a path."""
    sink = RelaySink(tmp_path, ".seg")
    frame = Encoder("worker-0a1b2c3d", {}).header()
    sink.write(RelaySink.label("worker-0a1b2c3d", frame), 0)
    assert (tmp_path / "worker-0a1b2c3d.seg").read_bytes() == frame
    for name in ("../worker-0a1b2c3d", "worker-0a1b2c3d/x", "scheduler-0a1b2c3d", "", "w\0x"):
        with pytest.raises(ValueError, match="not the id of a process"):
            RelaySink.label(name, frame)
    for data in (b"", b"frame", frame[:-1], frame + b"x", bytes(100)):
        with pytest.raises(ValueError, match="are not frames"):
            RelaySink.label("worker-0a1b2c3d", data)
    (tmp_path / "worker-00000000.seg").symlink_to(tmp_path / "elsewhere")
    sink.write(RelaySink.label("worker-00000000", frame), 0)
    assert sink.error
    assert not (tmp_path / "elsewhere").exists()


def test_relayed_files_keep_permissions_that_were_set_by_hand(tmp_path: Path) -> None:
    """A new file has the permissions of its folder; later frames do not change them."""
    tmp_path.chmod(0o750)
    sink = RelaySink(tmp_path, ".seg")
    labelled = RelaySink.label("worker-0a1b2c3d", Encoder("worker-0a1b2c3d", {}).header())
    path = tmp_path / "worker-0a1b2c3d.seg"
    for mode in (0o640, 0o644, 0o600):
        sink.write(labelled, 0)
        assert sink.error is None
        if mode != 0o640:
            path.chmod(mode)
            sink.write(labelled, 0)
        assert path.stat().st_mode & 0o777 == mode
