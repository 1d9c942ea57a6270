"""The bound on log entries of one process: a rate of lines, and bytes of text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dask_strata.schema.values import BEYOND_BOUND

#: Entries a second that a process records for long, and at once.
LINES_PER_SECOND = 2_000
LINES_AT_ONCE = 20_000

#: Bytes of text that a process records at once, and what is added to them a second.
BYTES_AT_ONCE = 8 << 20
BYTES_PER_SECOND = 1 << 10

#: Longest recorded text of one entry, in characters.
ENTRY_LIMIT = 10_000

#: Why entries are missing, in ``losses``.
REASON = (
    f"{BEYOND_BOUND} of {LINES_PER_SECOND:,} entries a second (at once {LINES_AT_ONCE:,}) and "
    f"{BYTES_AT_ONCE >> 20} MiB of text of a process"
)


class Budget:
    """Decides which entries are recorded, and counts the others. Thread-safe.

    Parameters
    ----------
    clock : callable, optional
        Returns seconds on a monotonic clock.

    Examples
    --------
    >>> budget = Budget(lambda: 0.0)
    >>> budget.take([80] * 20_001)
    20000
    >>> budget.take_lost()
    1
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines, self._bytes = float(LINES_AT_ONCE), float(BYTES_AT_ONCE)
        self._last = clock()
        self._lost = 0
        # Reentrant: a signal handler or a finalizer may log while its own thread holds the lock.
        self._lock = threading.RLock()

    def take(self, sizes: list[int]) -> int:
        """Return how many of the next entries to record, from the first; the others are lost.

        Parameters
        ----------
        sizes : list of int
            Size of the text of each entry.
        """
        with self._lock:
            self._refill()
            n = min(len(sizes), int(self._lines))
            left = self._bytes
            for i in range(n):
                left -= sizes[i]
                if left < 0:
                    n, left = i, left + sizes[i]
                    break
            self._lines -= n
            self._bytes = left
            self._lost += len(sizes) - n
            return n

    def _refill(self) -> None:
        now = self._clock()
        seconds, self._last = max(now - self._last, 0.0), now
        self._lines = min(self._lines + seconds * LINES_PER_SECOND, LINES_AT_ONCE)
        self._bytes = min(self._bytes + seconds * BYTES_PER_SECOND, BYTES_AT_ONCE)

    def unlose(self, n: int) -> None:
        """Count entries as recorded that were lost before."""
        with self._lock:
            self._lost -= n

    def take_lost(self, kept: int = 0) -> int:
        """Return the number of lost entries since the last call, without those still kept.

        Parameters
        ----------
        kept : int, optional
            Number of lost entries that may be recorded later.
        """
        with self._lock:
            lost, self._lost = self._lost - kept, kept
            return lost
