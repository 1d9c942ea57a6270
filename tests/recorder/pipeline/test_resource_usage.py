"""Resources of a thread from samples: of this kernel, of other formats, and of none."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dask_strata.config import read_settings
from dask_strata.recorder.pipeline import resource_usage
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.resource_usage import Sample, begin, close_files, end
from dask_strata.store.manifest import Manifest
from tests.conftest import wait_until

on_linux = pytest.mark.skipif(
    not Path("/proc/thread-self/io").exists(), reason="only Linux accounts for threads"
)

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Usage(NamedTuple):
    """The fields of `getrusage` that are read."""

    ru_minflt: int = 0
    ru_majflt: int = 0
    ru_nvcsw: int = 0
    ru_nivcsw: int = 0
    ru_maxrss: int = 0


def io(*numbers: int) -> bytes:
    """Return the text of /proc/thread-self/io."""
    names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")
    lines = [f"{n}: {v}\n" for n, v in zip(names, numbers, strict=True)]
    return ("".join(lines) + "cancelled_write_bytes: 0\n").encode()


def statm(pages: int) -> bytes:
    """Return the text of /proc/self/statm."""
    return f"99999 {pages} 10 1 0 50 0\n".encode()


def status(kilobytes: int) -> bytes:
    """Return a part of the text of /proc/self/status."""
    return f"Name:\tpython\nVmPeak:\t  999 kB\nVmHWM:\t  {kilobytes} kB\nVmRSS:\t  1 kB\n".encode()


def sample(time: int = 0, usage: Any = None, **raw: Any) -> Sample:
    """Return a sample with the given readings only."""
    return Sample(time, usage, raw.get("io"), raw.get("statm"), raw.get("status"))


@pytest.fixture
def files() -> Iterator[None]:
    """Close all accounting files after the test."""
    yield
    close_files()


def used(before: Sample, after: Sample) -> dict[str, Any]:
    """Return the used resources by column."""
    return dict(zip(resource_usage.MEASURES, resource_usage.used(before, after), strict=True))


def test_differences_of_everything() -> None:
    """Each column is the difference of its own counter."""
    first = io(1000, 2000, 30, 40, 5, 6)
    found = used(
        sample(10, Usage(1, 2, 3, 4, 5), io=first, statm=statm(7)),
        sample(
            25,
            Usage(11, 22, 33, 44, 5),
            io=io(11000, 2200, 330, 440, 55, 66),
            statm=statm(9),
        ),
    )
    assert found == {
        "start": 10,
        "stop": 25,
        "minor_faults": 10,
        "major_faults": 20,
        "voluntary_switches": 30,
        "involuntary_switches": 40,
        "read_bytes": 10000 - len(first),
        "write_bytes": 200,
        "read_calls": 299,
        "write_calls": 400,
        "storage_read_bytes": 50,
        "storage_write_bytes": 60,
        "rss_before_bytes": 7 * PAGE,
        "rss_after_bytes": 9 * PAGE,
        "rss_peak_bytes": 9 * PAGE,
        "other_read_bytes": None,
        "other_write_bytes": None,
    }


@pytest.mark.parametrize(
    ("first", "foreign", "others"),
    [
        ((3, 2, 0, 0), (5, 2, 30, 70), (4000, 900)),
        ((3, 2, 0, 0), (5, 3, 30, 70), (None, None)),
        ((3, 2, 0, 0), None, (None, None)),
        (None, (5, 2, 30, 70), (None, None)),
    ],
    ids=["the recorder read and wrote", "Dask spilled", "under way at the end", "at the start"],
)
def test_other_threads(first: Any, foreign: Any, others: tuple[Any, Any]) -> None:
    """They have the process's bytes without the thread's, the readings' and the recorder's."""
    own, all_ = io(1000, 2000, 0, 0, 0, 0), io(50_000, 60_000, 0, 0, 0, 0)
    after = io(1000 + len(own) + 500, 2100, 0, 0, 0, 0)
    readings = len(all_) + len(own) + len(after)
    later = io(50_000 + readings + 500 + 30 + 4000, 60_000 + 100 + 70 + 900, 0, 0, 0, 0)
    found = used(
        sample(0, None, io=own)._replace(process_io=all_, foreign=first),
        sample(1, None, io=after)._replace(process_io=later, foreign=foreign),
    )
    assert (found["read_bytes"], found["write_bytes"]) == (500, 100)
    assert (found["other_read_bytes"], found["other_write_bytes"]) == others


@on_linux
@pytest.mark.usefixtures("files")
def test_the_recorders_own_bytes_are_of_no_task(tmp_path: Path) -> None:
    """A recorder that writes and samples all the time gives no execution a byte."""
    (tmp_path / "segments").mkdir()
    Manifest("0a1b", "own", 0, "0").write(tmp_path)
    settings = read_settings({"flush-interval": "10ms", "sample-interval": "10ms"})
    engine = Engine("worker", "0a1b", tmp_path, settings)
    engine.start(address="w")
    own = f"dask-strata-{engine.process}"
    known = []
    try:
        wait_until(lambda: not any(t.name == f"{own}-facts" for t in threading.enumerate()))
        for i in range(200):
            before = begin(alone=True)
            engine.add("job", name="x" * 1000)
            time.sleep(i % 20 / 1000)
            found = used(before, end(alone=True))
            if found["other_read_bytes"] is not None:
                known.append((found["other_read_bytes"], found["other_write_bytes"]))
    finally:
        engine.finish("done")
    assert len(known) > 20
    assert set(known) == {(0, 0)}


def test_missing_readings_are_null() -> None:
    """Without readings there are only times; all other columns are null, not 0."""
    found = {k: v for k, v in used(sample(1), sample(2)).items() if v is not None}
    assert found == {"start": 1, "stop": 2}


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (None, io(1, 2, 3, 4, 5, 6)),
        (io(1, 2, 3, 4, 5, 6), None),
        (b"", io(1, 2, 3, 4, 5, 6)),
        (io(1, 2, 3, 4, 5, 6), b"rchar: 1\n"),
        (b"rchar: 1\nwchar: 2\n", b"rchar: 1\nwchar: 2\n"),
        (io(1, 2, 3, 4, 5, 6).replace(b"rchar", b"other"),) * 2,
    ],
)
def test_io_in_an_unknown_format(first: bytes | None, last: bytes | None) -> None:
    """A single, partial or unknown reading results in null, without an exception."""
    found = used(sample(io=first), sample(io=last))
    names = ("read_bytes", "write_bytes", "read_calls", "write_calls")
    assert [found[name] for name in names] == [None] * len(names)


@pytest.mark.parametrize(
    ("first", "last", "before", "after", "peak"),
    [
        (3, 4, Usage(), Usage(), 4),
        (4, 3, Usage(), Usage(), 4),
        (3, 3, Usage(ru_maxrss=900 * PAGE // 1024), Usage(ru_maxrss=900 * PAGE // 1024), 3),
        (3, 3, Usage(ru_maxrss=900 * PAGE // 1024), Usage(ru_maxrss=901 * PAGE // 1024), 901),
        (3, 3, None, None, 3),
        (None, 3, Usage(), Usage(), None),
        (3, None, Usage(), Usage(), None),
    ],
)
def test_peaks(first: Any, last: Any, before: Any, after: Any, peak: Any) -> None:
    """A peak counts only if it was reached between the samples."""
    found = used(
        sample(usage=before, statm=None if first is None else statm(first)),
        sample(usage=after, statm=None if last is None else statm(last)),
    )
    assert found.get("rss_peak_bytes") == (None if peak is None else peak * PAGE)


@pytest.mark.parametrize(("first", "last", "peak"), [(900, 900, 3 * PAGE), (900, 901, 901 * 1024)])
def test_peaks_of_a_process_with_a_larger_parent(first: int, last: int, peak: int) -> None:
    """If `usage` has the parent's peak, the peak is read from the status."""
    usage = Usage(ru_maxrss=10**9)
    found = used(
        sample(usage=usage, statm=statm(3), status=status(first)),
        sample(usage=usage, statm=statm(3), status=status(last)),
    )
    assert found["rss_peak_bytes"] == peak


@pytest.mark.parametrize("raw", [b"", b"Name:\tpython\n", b"VmHWM:", b"VmHWM:\t1 MB\n"])
def test_status_without_a_peak(raw: bytes) -> None:
    """A status without a peak counts as no status."""
    found = used(sample(statm=statm(3), status=raw), sample(statm=statm(3), status=raw))
    assert found["rss_peak_bytes"] == 3 * PAGE


@on_linux
@pytest.mark.usefixtures("files")
def test_own_reading_is_not_counted() -> None:
    """The reads of the samples themselves are not counted; all other reads are."""
    for _ in range(50):
        found = used(begin(), end())
        assert (found["read_bytes"], found["read_calls"]) == (0, 0)
        assert (found["write_bytes"], found["write_calls"]) == (0, 0)
    zero = os.open("/dev/zero", os.O_RDONLY)
    for size in (1, 4096, 1_000_000):
        before = begin()
        os.read(zero, size)
        os.read(zero, size)
        found = used(before, end())
        assert (found["read_bytes"], found["read_calls"]) == (2 * size, 2)
    os.close(zero)


@on_linux
@pytest.mark.usefixtures("files")
def test_threads_are_apart() -> None:
    """A sample of a thread does not contain the reads of another one."""

    def read() -> None:
        with Path("/dev/zero").open("rb", buffering=0) as file:
            file.read(1000)

    before = begin()
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert used(before, end())["read_bytes"] == 0


def descriptors() -> list[str]:
    """Return the accounting files that this process has open."""
    names = [link.resolve().name for link in Path("/proc/self/fd").iterdir()]
    return sorted(name for name in names if name in ("io", "statm", "status"))


@on_linux
def test_files_are_closed() -> None:
    """Files close at once if no task runs, else at its end; and with their thread."""
    close_files()
    assert not descriptors()
    begin()
    assert {"io", "statm"} <= set(descriptors())
    close_files()
    assert {"io", "statm"} <= set(descriptors()), "a task still runs"
    assert end().io is not None
    assert not descriptors()
    begin(), end()
    close_files()
    assert not descriptors()
    assert begin().io is not None, "files are opened again"
    end()
    close_files()
    thread = threading.Thread(target=lambda: (begin(), end()))
    thread.start()
    thread.join()
    assert not descriptors()


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A missing or unreadable file results in no reading."""
    assert resource_usage._open(str(tmp_path / "missing")) is None
    assert resource_usage._read(None) is None
    directory = os.open(tmp_path, os.O_RDONLY)
    assert resource_usage._read(directory) is None
    os.close(directory)
