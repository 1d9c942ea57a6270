"""Tasks with a known resource usage, and queries for their attempts."""

# Tasks open files with open() and os.open(), as users do.
# ruff: noqa: PTH110, PTH123

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, get_worker

from dask_strata import Run
from tests.conftest import rows, wait_until

#: For modules whose tests need the kernel's accounting of threads.
needs_accounting = pytest.mark.skipif(
    not Path("/proc/thread-self/io").exists(), reason="only Linux accounts for threads"
)

MB = 1_000_000

#: Columns of the resource usage of an attempt; on Linux the kernel reports all of them.
MEASURES = (
    "cpu_seconds",
    "read_bytes",
    "write_bytes",
    "read_calls",
    "write_calls",
    "storage_read_bytes",
    "storage_write_bytes",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "rss_before_bytes",
    "rss_after_bytes",
    "rss_peak_bytes",
    "process_cpu_seconds",
)


def attempts(run: Run, key: str) -> list[dict[str, Any]]:
    """Return the attempts at a task in order."""
    return rows(run, f"select * from attempts where key = '{key}' order by attempt")


def attempt(run: Run, key: str) -> dict[str, Any]:
    """Return the only attempt at a task; assert that all its measures are recorded."""
    (found,) = attempts(run, key)
    assert found["kind"] == "thread"
    assert not [name for name in MEASURES if found[name] is None]
    return found


def opens(run: Run, key: str) -> set[tuple[str, str, int]]:
    """Return uri, mode and count of the files that a task opened."""
    found = rows(run, f"select uri, mode, count from file_opens where key = '{key}'")
    return {(row["uri"], row["mode"], row["count"]) for row in found}


def forgotten(client: Client, key: str) -> None:
    """Wait until the scheduler has forgotten a task."""

    def known(dask_scheduler: Any) -> bool:
        return key in dask_scheduler.tasks

    wait_until(lambda: not client.run_on_scheduler(known), what=f"{key} to be forgotten")


def nothing() -> None:
    """Do nothing."""


def rest() -> None:
    """Sleep five times."""
    for _ in range(5):
        time.sleep(0.04)


def write_pieces(path: str, size: int) -> int:
    """Write ten pieces of that size; return the number of calls."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(10):
        os.write(file, b"x" * size)
    os.close(file)
    return 10


def copy(path: str, size: int) -> tuple[int, int]:
    """Copy a file in pieces; return the numbers of reads and writes."""
    calls = [0, 0]
    with open(path, "rb", buffering=0) as source, open(f"{path}.copy", "wb", buffering=0) as sink:
        calls[0] += 1
        while piece := source.read(size):
            calls[0] += 1
            calls[1] += sink.write(piece) > 0
    return calls[0], calls[1]


def write_and_fail(path: str) -> None:
    """Write 770 bytes and fail."""
    write_pieces(path, 77)
    raise ZeroDivisionError("on purpose")


def write_and_wait(folder: str) -> None:
    """Write 770 bytes, create the file `started`, and wait for the file `go`."""
    write_pieces(f"{folder}/written", 77)
    os.close(os.open(f"{folder}/started", os.O_WRONLY | os.O_CREAT))
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)


#: Makes two tasks of one process wait for each other.
MEETING = threading.Barrier(2)


def meet(_: int) -> str:
    """Wait for a second task in the same process; return the address of the worker."""
    MEETING.wait(60)
    return get_worker().address
