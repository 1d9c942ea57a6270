"""Tasks of these tests, in a module that workers import: their files and lines are known."""

from __future__ import annotations

import ctypes
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Lock

#: Longest time that a task of these tests hangs, in seconds.
LONGEST = 120


def step(seconds: float, wait_for: str | None = None) -> float:
    """Sleep, or hang; return how long that took, measured here."""
    begun = time.perf_counter()
    if wait_for is not None:
        hang(wait_for)
    time.sleep(seconds)
    return time.perf_counter() - begun


def hang(file: str) -> None:
    """Hang in one line until a file exists, and note the time before."""
    path, held = Path(file), threading.Lock()
    held.acquire()
    threading.Thread(target=_release, args=(held, path), daemon=True).start()
    path.with_suffix(".begun").write_text(repr(time.time()), encoding="utf-8")
    held.acquire(timeout=LONGEST)  # the line of `hang`


def _release(held: threading.Lock, file: Path) -> None:
    """Release a lock once a file exists."""
    until = time.monotonic() + LONGEST
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.01)
    held.release()


def hold(name: str) -> str:
    """Wait for a lock of Dask."""
    with Lock(name):  # the line of `hold`
        return name


def hold_gil(seconds: float) -> float:
    """Sleep in C without releasing the GIL."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return seconds


def fail(text: str) -> None:
    """Raise an exception."""
    raise ValueError(text)


def line_of(function: Callable[..., Any]) -> int:
    """Return the number of the line of a function that has the mark."""
    lines, first = inspect.getsourcelines(function)
    mark = f"# the line of `{function.__name__}`"
    return first + next(i for i, line in enumerate(lines) if mark in line)
