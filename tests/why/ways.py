"""Tasks that end their worker, each in its own way, and note the process id before."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import dask_strata

#: Bytes of each result that a worker holds, as Dask counts those of `bytes`, and seconds that it
#: takes to make one.
HELD_BYTES = 2_000_000
MAKE_SECONDS = 0.2


def note(folder: Path, name: str) -> None:
    """Print a line, and append the process id to a file."""
    print(f"{name} begins", flush=True)  # noqa: T201  the log of the worker has it
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def noted(folder: Path, name: str) -> list[int]:
    """Return the process ids in a file."""
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def make(_: int) -> bytes:
    """Make a result."""
    time.sleep(MAKE_SECONDS)
    return bytes(HELD_BYTES)


def hold(folder: Path, name: str) -> None:
    """Wait for a signal from outside."""
    dask_strata.flush()
    note(folder, name)
    time.sleep(600)


def fault(folder: Path, name: str) -> None:
    """Read memory that is not there, in C."""
    dask_strata.flush()
    note(folder, name)
    ctypes.string_at(0)


def leave(folder: Path, name: str) -> None:
    """End the process with status 7, without any handler of Python."""
    dask_strata.flush()
    note(folder, name)
    os._exit(7)


def hoard(folder: Path, name: str) -> None:
    """Use memory until something ends the process."""
    dask_strata.flush()
    note(folder, name)
    parts = []
    while True:
        parts.append(b"x" * 5_000_000)
        time.sleep(0.005)
