"""I/O of a process that belongs to no task: Dask's spilling, and the recorder's own.

The threads that execute tasks look at these numbers at the start and the end of an execution. They
are plain attributes, as that must cost next to nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Number of operations that have begun and ended.
began = ended = 0

#: Of the ended ones: operations of unknown size, and bytes that the others read and wrote.
unmeasured = read = written = 0

_lock = threading.Lock()


def _after_fork() -> None:
    """Replace the lock in a forked process: another thread may have held it during the fork."""
    global _lock  # noqa: PLW0603  a lock cannot be reset in place
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def operation() -> Iterator[Callable[[int, int], None]]:
    """Mark the block as an operation that reads or writes.

    Yields
    ------
    callable
        Takes the bytes that the operation read and wrote. They are unknown unless it is called.
    """
    global began, ended, unmeasured, read, written  # noqa: PLW0603  one number for the process
    sizes: tuple[int, int] | None = None

    def measure(bytes_read: int, bytes_written: int) -> None:
        nonlocal sizes
        sizes = bytes_read, bytes_written

    with _lock:
        began += 1
    try:
        yield measure
    finally:
        with _lock:
            if sizes is None:
                unmeasured += 1
            else:
                read += sizes[0]
                written += sizes[1]
            ended += 1  # after the others, because `state` reads it before them


def state() -> tuple[int, int, int, int]:
    """Return the numbers of ended and of unmeasured operations, and of bytes read and written."""
    return ended, unmeasured, read, written


def quiet_since(before: tuple[int, int, int, int]) -> bool:
    """Return whether no operation was under way at any time since this `state`."""
    return began == before[0]
