"""Darshan's logs as bytes: every layout is read back, and damaged bytes do no harm."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import LogError, open_log
from dask_strata.importers.darshan.survey import survey
from tests.support.darshan_files import Log, Operation, TracedFile

ANY_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)

operations = st.lists(
    st.builds(
        Operation,
        offset=st.integers(-1, 2**62),
        length=st.integers(0, 2**40),
        start=st.floats(0, 1e6),
        stop=st.floats(0, 1e6),
        thread=st.integers(1, 2**47),
    ),
    max_size=8,
)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
hosts = st.text("abcdef0123456789", min_size=1, max_size=20)
files = st.lists(
    st.builds(TracedFile, name=names, writes=operations, reads=operations, host=hosts), max_size=6
)
logs = st.builds(
    Log,
    files=files,
    layout=st.sampled_from([32, 40, 96]),
    order=st.sampled_from("<>"),
    compression=st.sampled_from([0, 1, 2]),
)


def read(path: Path) -> list[tuple[object, ...]]:
    """Return each operation of a log: file, write, offset, length, start, stop, thread."""
    log = open_log(path)
    known = log.read_names()
    found = []
    for module in ("DXT_POSIX",):
        if module in log.modules:
            for ops in Trace(log, module, known):
                columns = (ops.file, ops.write, ops.offset, ops.length, ops.start, ops.stop)
                rows = zip(*(c.tolist() for c in (*columns, ops.thread)), strict=True)
                found += [(known[row[0]], *row[1:]) for row in rows]
    return found


@given(log=logs)
@ANY_FOLDER
def test_each_layout_is_read_back(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "a.darshan"
    path.write_bytes(log.bytes())
    expected = [
        (f.name, write, o.offset, o.length, o.start, o.stop, o.thread if log.layout > 32 else 0)
        for f in log.files
        for write, some in ((True, f.writes), (False, f.reads))
        for o in some
    ]
    assert read(path) == expected
    header = open_log(path)
    assert (header.start, header.stop, header.jobid) == (log.start, log.stop, log.jobid)
    assert header.exe == log.exe


@given(log=logs, data=st.data())
@ANY_FOLDER
def test_a_cut_or_damaged_log_raises_log_error(
    tmp_path: Path, log: Log, data: st.DataObject
) -> None:
    whole = log.bytes()
    if data.draw(st.booleans()):
        broken = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        broken = whole[:at] + data.draw(st.binary(min_size=1, max_size=40)) + whole[at + 1 :]
    path = tmp_path / "a.darshan"
    path.write_bytes(broken)
    # Any other exception fails the test.
    with contextlib.suppress(LogError):
        read(path)


@pytest.mark.parametrize("offset", [1 << 32, 1 << 56, (1 << 63) - 1, (1 << 64) - 1])
def test_a_module_far_behind_the_end_is_cut(tmp_path: Path, offset: int) -> None:
    """Also where the file system, or Python, refuses the offset."""
    path = tmp_path / "a.darshan"
    whole = Log(files=[TracedFile(name="/a")], layout=40, order="<", compression=0).bytes()
    path.write_bytes(whole)
    place = struct.pack("<Q", open_log(path).modules["DXT_POSIX"].offset)
    assert whole.count(place) == 1
    path.write_bytes(whole.replace(place, struct.pack("<Q", offset)))
    with pytest.raises(LogError, match="cut"):
        read(path)


@given(noise=st.binary(max_size=4000))
@ANY_FOLDER
def test_noise_is_no_log(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "a.darshan"
    path.write_bytes(noise)
    with pytest.raises(LogError):
        open_log(path)


def test_operations_before_a_cut_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    many = [Operation(i, 1, t, t + 1, 7) for i, t in enumerate(rng.uniform(0, 9, 200_000))]
    log = Log([TracedFile("f", reads=many)])
    path = tmp_path / "a.darshan"
    whole = log.bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    header = open_log(path)
    assert header.cut(header.modules["DXT_POSIX"])
    seen = 0
    trace = iter(Trace(header, "DXT_POSIX", header.read_names()))
    with pytest.raises(LogError, match="cut"):  # noqa: PT012  some operations precede the error
        for ops in trace:
            seen += len(ops)
    assert 100_000 < seen < 200_000


def test_impossible_numbers_are_left_out(tmp_path: Path) -> None:
    good = Operation(0, 10, 1.0, 2.0, 7)
    bad = [
        Operation(0, 10, float("nan"), 2.0, 7),
        Operation(0, -10, 1.0, 2.0, 7),
        Operation(0, 10, 1.0, float("inf"), 7),
        Operation(0, 10, 1e300, 2.0, 7),
        Operation(0, 10, 1.0, 9e8, 7),
    ]
    path = tmp_path / "a.darshan"
    path.write_bytes(Log([TracedFile("f", reads=[*bad, good])]).bytes())
    assert read(path) == [("f", False, 0, 10, 1.0, 2.0, 7)]
    trace = Trace(open_log(path), "DXT_POSIX", {1: "f"})
    assert sum(map(len, trace)) == 1
    assert trace.dropped == len(bad)
    assert survey(path, "").problems == [
        "DXT_POSIX: 5 operations with impossible numbers are left out"
    ]


def test_a_cut_module_is_one_problem(tmp_path: Path) -> None:
    """A log that ends inside its trace has this problem once."""
    path = tmp_path / "a.darshan"
    reads = [Operation(i, 10, 1.0, 2.0, 7 * i) for i in range(1, 500)]
    whole = Log([TracedFile("f", reads=reads)]).bytes()
    path.write_bytes(whole[:-20])
    assert survey(path, "").problems == ["DXT_POSIX is cut"]


def hostile(record: bytes, size: int = 0) -> Log:
    """Return a log whose trace is these bytes, then zeros."""
    return Log([TracedFile("f")], others={"DXT_POSIX": record + bytes(size)})


def test_declared_sizes_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    for writes, reads in ((2**62, 2**62), (-1, 5), (5, -(2**60))):
        record = struct.pack("<Qqq64sqq", 1, 0, 0, b"vm", writes, reads)
        path.write_bytes(hostile(record).bytes())
        with pytest.raises(LogError, match=r"cut|damaged"):
            read(path)
    whole = bytearray(Log([TracedFile("f", reads=[Operation(0, 1, 0, 1)])]).bytes())
    whole[32 + 16 * 11 + 8 : 32 + 16 * 11 + 16] = struct.pack("<Q", 2**60)
    path.write_bytes(whole)
    with pytest.raises(LogError, match="cut"):
        read(path)


@pytest.mark.long
def test_a_bomb_takes_neither_memory_nor_time(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    # A gibibyte of zeros, which are no records.
    path.write_bytes(hostile(b"", 1 << 30).bytes())
    tracemalloc.start()
    with pytest.raises(LogError, match="damaged"):
        read(path)
    # Names that do not end.
    whole = bytearray(Log([TracedFile("f")]).bytes())
    bomb = zlib.compress(b"x" * (1 << 29))
    place = len(whole)
    whole[32:48] = struct.pack("<QQ", place, len(bomb))
    first = 32 + 16 * 65 + 4 * 64
    job = zlib.compress(zlib.decompressobj().decompress(bytes(whole[first:])))
    whole = whole[:first] + job
    whole[32:48] = struct.pack("<QQ", len(whole), len(bomb))
    path.write_bytes(bytes(whole) + bomb)
    with pytest.raises(LogError, match="more than 256 MiB"):
        open_log(path).read_names()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 30


def test_other_versions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    whole = Log([TracedFile("f")]).bytes()
    path.write_bytes(b"9.99".ljust(8, b"\0") + whole[8:])
    with pytest.raises(LogError, match=r"format 9\.99; supported are 3\.10"):
        open_log(path)
    path.write_bytes(b"")
    with pytest.raises(LogError, match="empty"):
        open_log(path)


def test_streams_of_several_ranks_are_read(tmp_path: Path) -> None:
    """Each rank of an MPI job compressed its own records."""
    one = Log([TracedFile("f", reads=[Operation(0, 1, 0, 1, 3)])])
    two = zlib.compress(one.trace()) + zlib.compress(one.trace())
    raw = bytearray(Log([TracedFile("f")], others={"DXT_POSIX": b"?"}).bytes())
    slot = 32 + 16 * 11
    offset, _ = struct.unpack("<QQ", raw[slot : slot + 16])
    raw[slot : slot + 16] = struct.pack("<QQ", offset, len(two))
    path = tmp_path / "a.darshan"
    path.write_bytes(bytes(raw[:offset]) + two)
    assert read(path) == [("f", False, 0, 1, 0.0, 1.0, 3)] * 2
