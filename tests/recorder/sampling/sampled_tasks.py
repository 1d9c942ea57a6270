"""Tasks that wait for one thing each, and measure for how long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import distributed

SHARED = threading.Lock()
BOTH = threading.Barrier(2)


def line_with(mark: str) -> int:
    """Return the number of the line of this file that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    [found] = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return found


def nothing() -> None:
    """Start the thread of a worker."""


def sleeps(seconds: float) -> float:
    start = time.monotonic()
    time.sleep(seconds)  # sleeps
    return time.monotonic() - start


def holds_lock(seconds: float, _: int) -> float:
    start = time.monotonic()
    with SHARED:  # lock
        waited = time.monotonic() - start
        time.sleep(seconds)
    return waited


def holds_dask_lock(seconds: float, _: int) -> float:
    start = time.monotonic()
    with distributed.Lock("shared"):  # Dask's lock
        waited = time.monotonic() - start
        time.sleep(seconds)
    return waited


def holds_gil(n: int, _: int) -> None:
    BOTH.wait()
    sum(range(n))  # holds the GIL


def runs_python(cpu_seconds: float, _: int) -> float:
    start, cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - cpu < cpu_seconds:
        sum(range(100))
    return time.monotonic() - start


def runs_without_gil(seconds: float, _: int) -> float:
    """Compute hashes, which releases the GIL."""
    import hashlib

    data, start = bytes(8_000_000), time.monotonic()
    while time.monotonic() - start < seconds:
        hashlib.sha256(data).digest()  # native
    return time.monotonic() - start


def reads_pipe(seconds: float) -> float:
    first, second = os.pipe()
    timer = threading.Timer(seconds, os.write, (second, b"x"))
    timer.start()
    start = time.monotonic()
    os.read(first, 1)  # pipe
    waited = time.monotonic() - start
    timer.join()
    os.close(first)
    os.close(second)
    return waited


def runs_process(seconds: float) -> float:
    start = time.monotonic()
    command = [sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"]
    subprocess.run(command, check=True)  # process
    return time.monotonic() - start


def writes_file(path: str, seconds: float) -> float:
    """Write to the disk, and wait for it."""
    start = time.monotonic()
    with Path(path).open("wb", buffering=0) as file:
        while time.monotonic() - start < seconds:
            file.write(bytes(1_000_000))
            os.fsync(file.fileno())  # file
            file.seek(0)
    return time.monotonic() - start
