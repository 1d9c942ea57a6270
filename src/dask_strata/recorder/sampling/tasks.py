"""Samples of the threads that execute tasks: what they wait for, and at which line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from dask_strata.recorder.pipeline import foreign_io
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import safe_repr, wire_keys
from dask_strata.recorder.sampling.frames import NOWHERE, Place, other_frames, place_of
from dask_strata.recorder.sampling.sums import Sample, Sampled, Sums, frozen_parts
from dask_strata.recorder.sampling.threads import SampledThreads
from dask_strata.store.segments.frames import Batch

#: A look that is late by this is one of a time in which the looking thread did not run. With looks
#: every 80 ms, that is each time of 130 ms and more, wherever it begins.
_LATE_NS = 50_000_000

#: A look that is late by this had to wait for the GIL.
_CONTENDED_NS = 250_000

_MAX_ERRORS = 100


class TaskSampler(Source):
    """Make batches of ``task_samples`` from looks at the executions under way.

    Parameters
    ----------
    address : str
        Address of the worker, for the rows.
    executions : callable
        Returns the executions under way on threads of this worker, and those that have ended since
        the last call.
    """

    def __init__(self, address: str, executions: Callable[[], list[Sampled]]) -> None:
        self._address, self._executions = address, executions
        self._threads = SampledThreads()
        self._sums = Sums()
        self._present: frozenset[int] = frozenset()
        #: Place and state of the executions under way at the last look.
        self._seen: dict[int, tuple[Place, str | None]] = {}
        self._closed = False
        #: Texts of errors, which the next `rows` records as losses.
        self._errors: set[str] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Note the CPU time of all threads so far. Call it before the first look, likewise."""
        with self._guarded(), foreign_io.operation() as measure:
            self._threads.start()
            read = self._threads.take_read_bytes()
            self.read_bytes += read
            measure(read, 0)

    def look(self, now: int, due: int, looked: int) -> None:
        """Take a sample of each execution under way. Call it on one thread, which needs the GIL.

        Parameters
        ----------
        now, due, looked : int
            When the thread woke up, when it was to wake up, and when it woke up for the last look,
            on the monotonic clock in nanoseconds.
        """
        with self._guarded():
            if not self._closed:
                self._look(now, due, looked)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except Exception as error:  # noqa: BLE001  the looking thread also measures the event loop
            if len(self._errors) < _MAX_ERRORS:
                self._errors.add(f"{type(error).__name__}: {safe_repr(error)}")

    def _look(self, now: int, due: int, looked: int) -> None:
        began = time.monotonic_ns()
        executions = self._executions()
        present = [each for each in executions if each.stop_ns is None]
        with foreign_io.operation() as measure:
            if now - due < _LATE_NS:
                contended = now - due >= _CONTENDED_NS
                self._sample(present, now - looked, began, contended=contended)
            else:
                self._sample_frozen(executions, now - due, due - looked, began)
            self._threads.end_look(began)
            self._present = frozenset(each.number for each in present)
            self._seen = {n: seen for n, seen in self._seen.items() if n in self._present}
            read = self._threads.take_read_bytes()
            self.read_bytes += read
            measure(read, 0)

    def _sample(
        self, present: Collection[Sampled], ns: int, began: int, *, contended: bool
    ) -> None:
        """Add a sample of each execution under way; together they stand for all since the last."""
        places = _places({execution.thread for execution in present})
        wall = time.time_ns()
        for execution in present:
            place = places.get(execution.thread)
            if place is not None:
                seen, credit = self._threads.look(execution.thread, ns, began)
                self._seen[execution.number] = place, seen.waiting
                settled = credit.settle(seen, contended=contended)
                self._sums.add(execution, place, settled, wall)

    def _sample_frozen(
        self, executions: Collection[Sampled], late: int, before: int, began: int
    ) -> None:
        """Add samples for a time in which this thread could not look at any moment.

        Executions that ended meanwhile have a part in it, too. Each thread's CPU time is divided
        among its executions by their length.
        """
        places = _places({execution.thread for execution in executions})
        wall = time.time_ns()
        by_thread: dict[int, list[tuple[Sampled, int]]] = {}
        for execution in executions:
            ns = _in_frozen(execution, wall, late, before)
            if ns > 0:
                by_thread.setdefault(execution.thread, []).append((execution, ns))
        for thread, parts in by_thread.items():
            total = sum(ns for _, ns in parts)
            seen, _ = self._threads.look(thread, total, began)
            place = places.get(thread, NOWHERE)
            for execution, ns in parts:
                at, waiting = self._seen.get(execution.number, (NOWHERE, None))
                if execution.stop_ns is None:
                    at, waiting = place, seen.waiting
                cpu, delay = _share(seen.cpu_ns, ns, total), _share(seen.delay_ns, ns, total)
                for part in frozen_parts(Sample(waiting, ns, cpu, delay)):
                    self._sums.add(execution, at, part, wall, apart=True)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the executions that ended since the last call, and of long ones."""
        for _ in range(len(self._errors)):
            reason = redact_text(self._errors.pop())
            yield Batch.of_rows(
                "losses", [{"time": time.time_ns(), "what": "task_samples", "reason": reason}]
            )
        with self._lock:
            found = self._sums.take(self._present, time.time_ns())
        if not found:
            return
        keys = wire_keys([execution.key for execution, _ in found])
        rows = [
            {
                "execution": execution.number,
                "key": key,
                "worker": self._address,
                "run_id": execution.run_id,
                **row,
            }
            for (execution, row), key in zip(found, keys, strict=True)
        ]
        yield Batch.of_rows("task_samples", rows)

    def finish(self) -> None:
        """End the samples: all sums become rows."""
        with self._lock:
            self._closed = True
            self._present = frozenset()
            self._threads.close()


def _places(threads: Collection[int]) -> dict[int, Place]:
    """Return the user's line in each of some threads; without those that have ended."""
    with other_frames() as frames:
        return {thread: place_of(frames[thread]) for thread in threads if thread in frames}


def _in_frozen(execution: Sampled, wall: int, late: int, before: int) -> int:
    """Return the part of an execution in a time that ends now, in nanoseconds.

    Parameters
    ----------
    execution : Sampled
        The execution.
    wall : int
        Wall clock now.
    late, before : int
        The time since the look that was due, and that from the last look until then.

    Examples
    --------
    >>> _in_frozen(Sampled(1, "k", 1, 7, start_ns=0), wall=1000, late=500, before=80)
    580
    >>> _in_frozen(Sampled(1, "k", 1, 7, start_ns=700, stop_ns=900), wall=1000, late=500, before=80)
    200
    """
    due = wall - late
    start = due if execution.start_ns is None else execution.start_ns
    stop = wall if execution.stop_ns is None else execution.stop_ns
    # The look that was due would have found it: it also stands for others from before.
    return stop - max(start, due) + (before if start <= due < stop else 0)


def _share(total: int | None, part: int, whole: int) -> int | None:
    return None if total is None else total * part // whole
