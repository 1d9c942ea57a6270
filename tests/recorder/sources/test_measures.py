"""CPU time, faults, bytes, calls and memory of executions, compared with the tasks' own figures."""

# Tasks open files with open(), as users do.
# ruff: noqa: PTH123

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import assert_whole
from tests.recorder.sources.measured_tasks import (
    MB,
    MEASURES,
    attempt,
    copy,
    needs_accounting,
    nothing,
    rest,
    write_pieces,
)

resource = pytest.importorskip("resource")
pytestmark = needs_accounting

PAGE = mmap.PAGESIZE

# The thread's own counters bound the recorded usage of a task: from below by their change inside
# the task, from above by their change between the tasks before and after it in the same thread.

USED = {
    "minor_faults": "ru_minflt",
    "major_faults": "ru_majflt",
    "voluntary_switches": "ru_nvcsw",
    "involuntary_switches": "ru_nivcsw",
}


def counters() -> dict[str, Any]:
    """Return the identity of the calling thread and its usage so far."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return {
        "thread": threading.get_ident(),
        "cpu_seconds": time.thread_time_ns(),
        **{column: getattr(usage, name) for column, name in USED.items()},
    }


def around(function: Callable[..., Any], *arguments: Any) -> tuple[dict, dict, Any]:
    """Call a function; return the counters before and after, and its result."""
    before = counters()
    result = function(*arguments)
    return before, counters(), result


def spin() -> None:
    """Use a fifth of a second of CPU time."""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass


def touch(pages: int) -> None:
    """Touch that many pages of fresh memory."""
    with mmap.mmap(-1, pages * PAGE) as memory:
        with contextlib.suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(0, pages * PAGE, PAGE):
            memory[start] = 1


def bracketed(client: Client, runs: Path, function: Callable[..., Any], *arguments: Any) -> dict:
    """Run a function between two others; its attempt agrees with the thread's own counters."""
    with dask_strata.record(runs, client=client) as run:
        _, begin, _ = client.submit(counters_only, "a", key="before", pure=False).result()
        first, last, _ = client.submit(around, function, *arguments, key="middle").result()
        end, _, _ = client.submit(counters_only, "b", key="after", pure=False).result()
    assert_whole(run)
    assert begin["thread"] == first["thread"] == end["thread"]
    found = attempt(run, "middle")
    assert found["thread"] == first["thread"]
    for column in ("cpu_seconds", *USED):
        used = round(found[column] * 1e9) if column == "cpu_seconds" else found[column]
        assert last[column] - first[column] <= used <= end[column] - begin[column], column
    return found


def counters_only(_: str) -> tuple[dict, dict, Any]:
    """Return the counters before and after nothing."""
    return around(nothing)


def test_cpu_is_that_of_the_thread(client: Client, runs: Path) -> None:
    """A busy task has its CPU time, a sleeping one next to none."""
    assert bracketed(client, runs, spin)["cpu_seconds"] >= 0.2
    slept = bracketed(client, runs, rest)
    assert slept["cpu_seconds"] < 0.2
    assert slept["voluntary_switches"] >= 5


def test_faults_are_those_of_the_thread(client: Client, runs: Path) -> None:
    """A task that touches fresh memory has a page fault for each page."""
    assert bracketed(client, runs, touch, 3000)["minor_faults"] >= 3000
    assert bracketed(client, runs, nothing)["minor_faults"] < 3000


def read_pieces(path: str, size: int) -> int:
    """Read a file in pieces; return the number of calls, with open and the empty last read."""
    file, calls = os.open(path, os.O_RDONLY), 1
    while os.read(file, size):
        calls += 1
    os.close(file)
    return calls


def read_whole(path: str, _: int) -> None:
    """Read a file with one call of Python's read."""
    with open(path, "rb") as file:
        file.read()


def read_array(path: str) -> tuple[int, int]:
    """Read a file of numbers with NumPy; return their sum and the kernel's count of bytes."""
    io = os.open("/proc/thread-self/io", os.O_RDONLY)
    before = os.pread(io, 500, 0)
    total = int(np.fromfile(path, dtype="uint8").sum())
    after = os.pread(io, 500, 0)
    os.close(io)
    first, last = (int(text.split()[1]) for text in (before, after))
    return total, last - first + len(after)


def used_twice(
    client: Client, runs: Path, function: Callable[..., Any], *arguments: Any
) -> tuple[dict[str, Any], Any]:
    """Return the attempt and the result of the second of two equal tasks.

    The first one may read modules to import.
    """
    with dask_strata.record(runs, client=client) as run:
        client.submit(function, *arguments, key="first").result()
        result = client.submit(function, *arguments, key="second").result()
    return attempt(run, "second"), result


@pytest.mark.parametrize("size", [1, 999, 100_000, 3 * MB])
def test_bytes_and_calls_are_exact(client: Client, runs: Path, tmp_path: Path, size: int) -> None:
    """Bytes and calls of reads and writes are exactly those of the task."""
    path = tmp_path / "data"
    path.write_bytes(b"y" * size)
    piece = max(1, size // 7)
    found, calls = used_twice(client, runs, read_pieces, str(path), piece)
    assert (found["read_bytes"], found["read_calls"]) == (size, calls)
    assert (found["write_bytes"], found["write_calls"]) == (0, 0)
    found, _ = used_twice(client, runs, read_whole, str(path), piece)
    assert (found["read_bytes"], found["write_bytes"]) == (size, 0)
    found, calls = used_twice(client, runs, write_pieces, str(tmp_path / "new"), piece)
    assert (found["write_bytes"], found["write_calls"]) == (10 * piece, calls)
    assert (found["read_bytes"], found["read_calls"]) == (0, 0)
    found, calls = used_twice(client, runs, copy, str(path), piece)
    assert (found["read_bytes"], found["write_bytes"]) == (size, size)
    assert (found["read_calls"], found["write_calls"]) == calls


def test_bytes_read_by_numpy(client: Client, runs: Path, tmp_path: Path) -> None:
    """Reads of NumPy through C's stdio are counted, including repeated ones."""
    path = tmp_path / "numbers"
    path.write_bytes(b"\1" * MB)
    found, (total, counted) = used_twice(client, runs, read_array, str(path))
    assert total == MB
    assert found["read_bytes"] == counted > MB


def test_a_task_that_does_nothing_reads_nothing(client: Client, runs: Path) -> None:
    """The recorder's own reads of the accounting are not counted."""
    found, _ = used_twice(client, runs, nothing)
    assert [found[name] for name in MEASURES[1:7]] == [0] * 6
    assert found["n_opened"] == 0


KEPT: list[Any] = []


def keep(size: int) -> None:
    """Fill memory and keep it, in the worker's process."""
    KEPT.append(b"x" * size)


def drop() -> None:
    """Free the kept memory."""
    KEPT.clear()


def fill(size: int) -> None:
    """Fill memory and free it."""
    data = b"x" * size
    del data


def peak_of_parent() -> tuple[int, int]:
    """Return the peaks of this process's memory: inherited from its parent, and its own."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    own = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, own


def test_memory_before_after_and_at_its_peak(client: Client, runs: Path) -> None:
    """Memory that a task keeps counts after it; memory that it frees counts in its peak."""
    with dask_strata.record(runs, client=client) as run:
        client.submit(nothing, key="idle").result()
        client.submit(keep, 100 * MB, key="keeps").result()
        client.submit(drop, key="drops").result()
        client.submit(fill, 300 * MB, key="fills").result()
        client.submit(nothing, key="again").result()
    kept, dropped, filled = (attempt(run, key) for key in ("keeps", "drops", "fills"))
    for key in ("idle", "again"):
        found = attempt(run, key)
        assert found["rss_peak_bytes"] < found["rss_before_bytes"] + 50 * MB
    assert 90 * MB < kept["rss_after_bytes"] - kept["rss_before_bytes"] < 150 * MB
    assert kept["rss_peak_bytes"] >= kept["rss_after_bytes"]
    assert 90 * MB < dropped["rss_before_bytes"] - dropped["rss_after_bytes"] < 150 * MB
    assert 290 * MB < filled["rss_peak_bytes"] - filled["rss_before_bytes"] < 350 * MB
    assert filled["rss_after_bytes"] < filled["rss_before_bytes"] + 50 * MB


def test_peaks_below_that_of_the_parent_are_recorded(runs: Path) -> None:
    """Peaks are a worker's own, even if the process that started it was larger."""
    data = b"x" * (800 * MB)  # the user's memory when the cluster starts
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        del data
        ((inherited, own),) = client.run(peak_of_parent).values()
        assert own + 200 * MB < inherited, (
            "the test needs a worker that is smaller than this process"
        )
        with dask_strata.record(runs, client=client) as run:
            client.submit(nothing, key="idle").result()
            client.submit(fill, 200 * MB, key="fills").result()
            client.submit(nothing, key="again").result()
    filled = attempt(run, "fills")
    assert 190 * MB < filled["rss_peak_bytes"] - filled["rss_before_bytes"] < 250 * MB
    again = attempt(run, "again")
    assert again["rss_peak_bytes"] < again["rss_before_bytes"] + 50 * MB
