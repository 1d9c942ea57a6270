"""The threads of this process that are sampled: their files, and their use since the last look."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from dask_strata.recorder.sampling.kernel import Reading, ThreadFiles
from dask_strata.recorder.sampling.sums import Credit, Sample
from dask_strata.recorder.sampling.system_calls import UNKNOWN

#: Most threads whose files are kept open.
_MAX_THREADS = 128


@dataclass
class _Thread:
    files: ThreadFiles | None
    credit: Credit = field(default_factory=Credit)
    usage: tuple[int | None, int | None] = (None, None)
    seen: bool = False


class SampledThreads:
    """Readings of threads at each look of one looking thread.

    Attributes
    ----------
    read_bytes : int
        Bytes that the readings have read from files.
    """

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}
        self._baseline: dict[int, tuple[int | None, int | None]] | None = None
        self.read_bytes = 0

    def start(self) -> None:
        """Note the CPU time so far of all threads, which is of the time before."""
        self._baseline = {}
        for thread in threading.enumerate():
            if thread.native_id is not None:
                files = ThreadFiles(thread.native_id)
                self._baseline[thread.native_id] = files.usage()
                self._close(files)

    def look(self, identity: int, ns: int, began: int) -> tuple[Sample, Credit]:
        """Return the sample of a thread for the time since the last look, as seen.

        Parameters
        ----------
        identity : int
            Identity of the thread.
        ns : int
            Time since the last look, in nanoseconds.
        began : int
            When this look began, on the monotonic clock in nanoseconds.
        """
        known = self._threads.get(identity)
        thread = known or self._add(identity)
        thread.seen = True
        files = thread.files
        reading = Reading(None, None, UNKNOWN) if files is None else files.read()
        cpu, delay = self._used(thread, (reading.cpu_ns, reading.delay_ns))
        if cpu is not None and cpu > ns:
            cpu -= _leave_to_next(thread, cpu - ns, began)
        if known is None:  # it may have run before the last look
            cpu, delay = _at_most(cpu, ns), _at_most(delay, ns)
        # The kernel adds a delay when it ends: that can exceed the time since the last look.
        return Sample(reading.waiting, ns, cpu, delay), thread.credit

    def end_look(self, began: int) -> None:
        """Note the CPU time of the threads that this look skipped, and drop those that ended.

        Parameters
        ----------
        began : int
            When this look began, on the monotonic clock in nanoseconds.
        """
        for identity, thread in list(self._threads.items()):
            if thread.seen:
                thread.seen = False
                continue
            usage = (None, None) if thread.files is None else thread.files.usage()
            if usage[0] is None:
                del self._threads[identity]
                if thread.files is not None:
                    self._close(thread.files)
            before, thread.usage = thread.usage[0], usage
            if usage[0] is not None and before is not None:
                _leave_to_next(thread, usage[0] - before, began)

    def close(self) -> None:
        """Close all files."""
        for thread in self._threads.values():
            if thread.files is not None:
                self._close(thread.files)
        self._threads.clear()

    def take_read_bytes(self) -> int:
        """Return the bytes read since the last call."""
        total = self.read_bytes
        for thread in self._threads.values():
            if thread.files is not None:
                total += thread.files.read_bytes
                thread.files.read_bytes = 0
        self.read_bytes = 0
        return total

    def _add(self, identity: int) -> _Thread:
        native = next((t.native_id for t in threading.enumerate() if t.ident == identity), None)
        few = len(self._threads) < _MAX_THREADS
        thread = _Thread(ThreadFiles(native) if native is not None and few else None)
        # A thread that started since the first look has used all its CPU time since then.
        thread.usage = (self._baseline or {}).pop(native or -1, (0, 0))
        self._threads[identity] = thread
        return thread

    @staticmethod
    def _used(
        thread: _Thread, usage: tuple[int | None, int | None]
    ) -> tuple[int | None, int | None]:
        (cpu, delay), (cpu_before, delay_before) = usage, thread.usage
        thread.usage = usage
        if cpu is None or delay is None or cpu_before is None or delay_before is None:
            return None, None
        return max(0, cpu - cpu_before), max(0, delay - delay_before)

    def _close(self, files: ThreadFiles) -> None:
        self.read_bytes += files.read_bytes
        files.close()


def _leave_to_next(thread: _Thread, cpu: int, began: int) -> int:
    """Leave CPU time of a thread to the next look, as far as it can be of this look; return it.

    Opening the files of a thread gives up the GIL, and a thread that takes it then may hold it for
    long. Times of looks are those of their beginnings, so this is time before the next one.
    """
    used, delay = thread.usage
    left = min(cpu, time.monotonic_ns() - began)
    thread.usage = None if used is None else used - left, delay
    return left


def _at_most(value: int | None, most: int) -> int | None:
    return None if value is None else min(value, most)
