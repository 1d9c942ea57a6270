"""I/O of a process that belongs to no task: Dask's spilling, and the recorder's own.

The threads that execute tasks look at these numbers at the start and the end of an execution. They
are plain attributes, as that must cost next to nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Number of operations of unknown size that have begun and ended, and bytes that were written.
began = ended = written = 0

_lock = threading.Lock()


def _after_fork() -> None:
    """Replace the lock in a forked process: another thread may have held it during the fork."""
    global _lock  # noqa: PLW0603  a lock cannot be reset in place
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def unmeasured() -> Iterator[None]:
    """Mark the block as an operation that reads or writes an unknown number of bytes."""
    global began, ended  # noqa: PLW0603  one number for the process
    with _lock:
        began += 1
    try:
        yield
    finally:
        with _lock:
            ended += 1


def count_written(nbytes: int) -> None:
    """Count bytes that the recorder has written to files.

    Parameters
    ----------
    nbytes : int
        The bytes.
    """
    global written  # noqa: PLW0603  one number for the process
    with _lock:
        written += nbytes


def state() -> tuple[int, int, int]:
    """Return the numbers of begun and ended operations, and of written bytes."""
    return began, ended, written
