"""Blocks of an event loop: the times in which it ran no callback, each counted once.

A thread of its own looks at the loop every 80 ms. Dask's loops note the time every 20 ms; if that
time is old, the thread requests a callback, and the loop was blocked until it runs the callback. If
the thread itself wakes up late, it could not run either: one call held the GIL, many threads
competed for it, or the process did not run. Both are blocks, and their overlap counts once. Under
such competition the loop may run a callback within a block, between two waits for the GIL.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sampling.tasks import TaskSampler
from dask_strata.store.segments.frames import Batch

#: Pause between two looks in seconds, which is how much of a frozen time may be missed.
_INTERVAL = 0.08

#: How often Dask's loops note the time, and the age of that time at which a callback is requested.
_TICK_NS = 20_000_000
_OLD_NS = 2 * _TICK_NS

#: Shortest block with a row, in nanoseconds.
LEAST_NS = 100_000_000

#: Longest wait for the thread at the end of a recording, in seconds.
_JOIN_SECONDS = 1


class Block(NamedTuple):
    """Time without a callback, in nanoseconds on the monotonic clock.

    Attributes
    ----------
    start, stop : int
        Its times.
    frozen : int
        Part of it in which the measuring thread did not run either.
    cpu : int
        CPU time of the process from the last look before it until the first one after it.
    """

    start: int
    stop: int
    frozen: int
    cpu: int


class _Request:
    """A callback that the loop is to run, and when it did.

    Parameters
    ----------
    now : int
        When it is requested, in nanoseconds.
    begun : int
        Since when the loop may have been blocked.
    cpu : int
        CPU time of the process so far.
    """

    def __init__(self, now: int, begun: int, cpu: int) -> None:
        self.made, self.begun, self.cpu = now, begun, cpu
        self.frozen = 0
        self.ran: int | None = None

    def run(self) -> None:
        """Record the time; called by the loop."""
        self.ran = time.monotonic_ns()


class LoopMonitor(Source):
    """Measure how long an event loop is blocked.

    Parameters
    ----------
    server : distributed.Scheduler or distributed.Worker
        The server whose loop it is.
    process : str
        Id of the recorded process, for the name of the thread.
    worker : str, optional
        Address of the server, if it is a worker.
    sampler : TaskSampler, optional
        Samples the executions under way at each look.
    """

    def __init__(
        self,
        server: Any,
        process: str,
        worker: str | None = None,
        sampler: TaskSampler | None = None,
    ) -> None:
        self._server, self._worker, self._sampler = server, worker, sampler
        self._blocks: deque[Block] = deque()
        self._longest: int | None = None
        self._last_stop = 0
        self._lock = threading.Lock()
        self._request: _Request | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"dask-strata-{process}-loop", daemon=True
        )

    def start(self) -> None:
        """Start the measurements."""
        self._thread.start()

    def remove(self) -> None:
        """End the measurements; does not wait."""
        self._stop.set()

    def detach(self) -> None:
        """End the measurements; does not wait."""
        self.remove()

    def finish(self) -> None:
        """Wait for the thread, so that a block that has not ended is in the last rows."""
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def lag(self) -> float | None:
        """Return the longest delay that ended since the last call, in seconds; None without one."""
        with self._lock:
            longest, self._longest = self._longest, None
        return None if longest is None else longest / 1e9

    def rows(self) -> Iterable[Batch]:
        """Return the blocks that ended since the last call."""
        # Blocks are measured on the monotonic clock, which no adjustment moves.
        offset = time.time_ns() - time.monotonic_ns()
        rows = []
        for _ in range(len(self._blocks)):
            block = self._blocks.popleft()
            start, stop = block.start + offset, block.stop + offset
            # The clocks differ from flush to flush, and blocks that adjoin must not overlap. After
            # the wall clock was set back, the last block is later than this one.
            if self._last_stop < stop:
                start = max(start, self._last_stop)
            self._last_stop = stop
            rows.append(
                {
                    "start": start,
                    "stop": stop,
                    "worker": self._worker,
                    "seconds": (block.stop - block.start) / 1e9,
                    "frozen_seconds": block.frozen / 1e9,
                    "cpu_seconds": block.cpu / 1e9,
                }
            )
        return (Batch.of_rows("loop_blocks", rows),) if rows else ()

    def _watch(self) -> None:
        if self._sampler is not None:
            self._sampler.start()
        stopped, looked, cpu = False, time.monotonic_ns(), time.process_time_ns()
        while not stopped:
            # The look itself may be frozen, too.
            due = looked + int(_INTERVAL * 1e9)
            stopped = self._stop.wait(max(0, due - time.monotonic_ns()) / 1e9)
            # The sampler gives up the GIL to open files, and may have to wait for it. That time is
            # part of the next look, and so is its CPU time.
            now, cpu_now = time.monotonic_ns(), time.process_time_ns()
            if self._sampler is not None:
                self._sampler.look(now, due, looked)
            self._look(now, due, looked, cpu)
            looked, cpu = now, cpu_now
            self.cpu_seconds = time.thread_time()
        self._add_unfinished()

    def _look(self, now: int, due: int, looked: int, cpu: int) -> None:
        request = self._request
        ran = None if request is None else request.ran  # the loop may set it at any moment
        if request is not None and ran is None:
            request.frozen += now - due if now - due >= LEAST_NS else 0
            return
        self._request = None
        self._add(delays(request, ran, due, now), cpu if request is None else request.cpu)
        ticked = self._last_tick(now)
        if ticked is None or now - ticked > _OLD_NS:
            begun = now
            if ticked is not None and now - due < LEAST_NS:  # a late look has added this time
                begun = max(ticked + _TICK_NS, looked)
            self._request = request = _Request(now, begun, cpu)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._server.loop.add_callback(request.run)
        else:
            self._add_delay(max(0, now - ticked - _TICK_NS))

    def _last_tick(self, now: int) -> int | None:
        """Return when the loop noted the time, on the monotonic clock; None if it does not."""
        tick = getattr(self._server, "_last_tick", None)
        return now - int((time.time() - tick) * 1e9) if isinstance(tick, float) else None

    def _add(self, found: Iterable[tuple[int, int, int]], cpu_before: int) -> None:
        for start, stop, frozen in found:
            self._add_delay(stop - start)
            if stop - start >= LEAST_NS:
                cpu = time.process_time_ns() - cpu_before
                self._blocks.append(Block(start, stop, frozen, cpu))

    def _add_delay(self, ns: int) -> None:
        with self._lock:
            self._longest = max(ns, self._longest or 0)

    def _add_unfinished(self) -> None:
        """Add the block that has not ended, unless the loop itself has ended."""
        request, loop = self._request, getattr(self._server.loop, "asyncio_loop", None)
        if request is not None and loop is not None and loop.is_running():
            now = time.monotonic_ns()
            self._add(delays(request, request.ran or now, now, now), request.cpu)


def delays(
    request: _Request | None, ran: int | None, due: int, now: int
) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and frozen part of the delays since the last look, which are disjoint.

    Parameters
    ----------
    request : _Request or None
        The last request, if it was open.
    ran : int or None
        When the loop ran its callback, in nanoseconds.
    due, now : int
        When the looking thread was to wake up, and when it did, in nanoseconds.

    Examples
    --------
    >>> list(delays(None, None, 50, 900_000_050))  # the looking thread did not run
    [(50, 900000050, 900000000)]
    >>> request = _Request(40, 30, 0)
    >>> list(delays(request, 900_000_000, 900_000_050, 900_000_051))  # the loop did not run
    [(30, 900000000, 0)]
    >>> list(delays(request, 900_000_000, 50, 900_000_051))  # nor did the looking thread
    [(30, 900000000, 899999950)]
    """
    late = now - due >= LEAST_NS
    if request is not None and ran is not None:
        # The request may be one of a loop that is not blocked: it runs at once.
        start = request.begun if ran - request.made >= _TICK_NS else request.made
        yield start, ran, request.frozen + (max(min(now, ran) - due, 0) if late else 0)
        due = max(due, ran)
    if now - due >= LEAST_NS:
        yield due, now, now - due
