"""Samples of the thread that uses a client: what it waits for, and at which line."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dask_strata.recorder.pipeline import foreign_io
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import safe_repr
from dask_strata.recorder.sampling.frames import Place, other_frames, place_of
from dask_strata.recorder.sampling.places import code_of, place_columns
from dask_strata.recorder.sampling.sums import Sample, frozen_parts
from dask_strata.recorder.sampling.threads import SampledThreads
from dask_strata.store.segments.frames import Batch

#: Pause between two looks, and lateness of one at which the thread was frozen, in nanoseconds.
_INTERVAL_NS = 80_000_000
_LATE_NS = 100_000_000

#: Longest time in one row, in nanoseconds: a process that is killed loses that of its last row.
_LONGEST_NS = 2_000_000_000

#: Longest wait for the sampling thread at the end, in seconds.
_JOIN_SECONDS = 1

_MAX_ERRORS = 100


@dataclass(slots=True)
class _Span:
    """Consecutive samples at one line that waited for the same."""

    place: Place
    waiting: str | None
    start: int
    stop: int
    ns: int = 0
    cpu_ns: int | None = None
    delay_ns: int | None = None

    def add(self, sample: Sample, stop: int) -> None:
        self.stop = stop
        self.ns += sample.ns
        if sample.cpu_ns is not None:
            self.cpu_ns = (self.cpu_ns or 0) + sample.cpu_ns
        if sample.delay_ns is not None:
            self.delay_ns = (self.delay_ns or 0) + sample.delay_ns


class ClientSampler(Source):
    """Make batches of ``client_samples``. Create it on the client's event loop.

    Parameters
    ----------
    client : distributed.Client
        The client.
    process : str
        Id of the recorded process, for the name of the thread.
    code : bool
        Whether to record the text of the user's line.
    """

    def __init__(self, client: Any, process: str, *, code: bool) -> None:
        self._client, self._code = client.id, code
        main = threading.main_thread().ident or 0
        #: The sampled thread: of an asynchronous client, that of its event loop.
        asynchronous = getattr(client, "_asynchronous", False)
        self._sampled = threading.get_ident() if asynchronous else main
        self._threads = SampledThreads()
        self._open: _Span | None = None
        self._ended: deque[_Span] = deque()
        #: Texts of errors, which the next `rows` records as losses.
        self._errors: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"dask-strata-{process}-samples", daemon=True
        )

    def start(self) -> None:
        """Start the samples."""
        self._thread.start()

    def follow(self, thread: int) -> None:
        """Sample another thread from now on.

        Parameters
        ----------
        thread : int
            Identity of a thread that has used the client.
        """
        self._sampled = thread

    def detach(self) -> None:
        """End the samples; does not wait."""
        self._stop.set()

    def finish(self) -> None:
        """Wait for the thread, and end the last row."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        with self._lock:
            self._end_span()

    def rows(self) -> Iterable[Batch]:
        """Return the rows that ended since the last call, and losses."""
        for _ in range(len(self._errors)):
            reason = redact_text(self._errors.pop())
            yield Batch.of_rows(
                "losses", [{"time": time.time_ns(), "what": "client_samples", "reason": reason}]
            )
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        if ended:
            yield Batch.of_rows("client_samples", [self._row(span) for span in ended])

    def _row(self, span: _Span) -> dict[str, Any]:
        return {
            "start": span.start,
            "stop": span.stop,
            "client": self._client,
            "waiting": span.waiting,
            **place_columns(span.place),
            "code": code_of(span.place) if self._code else None,
            "seconds": span.ns / 1e9,
            "cpu_seconds": None if span.cpu_ns is None else span.cpu_ns / 1e9,
            "delay_seconds": None if span.delay_ns is None else span.delay_ns / 1e9,
        }

    def _watch(self) -> None:
        self._threads.start()
        stopped, looked = False, time.monotonic_ns()
        while not stopped:
            due = looked + _INTERVAL_NS
            stopped = self._stop.wait(max(0, due - time.monotonic_ns()) / 1e9)
            now = time.monotonic_ns()
            try:
                self._look(now, due, looked)
            except Exception as error:  # noqa: BLE001  no error of the recorder reaches the user
                if len(self._errors) < _MAX_ERRORS:
                    self._errors.add(f"{type(error).__name__}: {safe_repr(error)}")
            looked = now
            self.cpu_seconds = time.thread_time()
        self._threads.close()

    def _look(self, now: int, due: int, looked: int) -> None:
        with foreign_io.operation() as measure:
            with other_frames() as frames:
                frame = frames.get(self._sampled)
                place = None if frame is None else place_of(frame)
                del frame
            if place is not None:
                wall = time.time_ns()
                seen, credit = self._threads.look(self._sampled, now - looked, now)
                late = now - due >= _LATE_NS
                parts = list(frozen_parts(seen)) if late else [credit.settle(seen)]
                start = wall - seen.ns
                for part in parts:
                    self._add(place, part, start, start + part.ns)
                    start += part.ns
            self._threads.end_look(now)
            read = self._threads.take_read_bytes()
            self.read_bytes += read
            measure(read, 0)

    def _add(self, place: Place, sample: Sample, start: int, stop: int) -> None:
        with self._lock:
            span = self._open
            same = span is not None and (span.place, span.waiting) == (place, sample.waiting)
            if span is None or not same or stop - span.start > _LONGEST_NS:
                # The look itself takes time, and rows that adjoin must not overlap.
                start = start if span is None else min(stop, max(start, span.stop))
                self._end_span()
                span = self._open = _Span(place, sample.waiting, start, start)
            span.add(sample, max(stop, span.start))

    def _end_span(self) -> None:
        if self._open is not None:
            self._ended.append(self._open)
            self._open = None
