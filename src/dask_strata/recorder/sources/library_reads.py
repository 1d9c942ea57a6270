"""What libraries did during one execution: bytes by file, chunks, and time by phase."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_path
from dask_strata.recorder.sources.transitions import text_or_none

#: Bound on the ranges of one file that an execution keeps; beyond it ``spans`` is null.
MAX_SPANS = 20_000

#: Bound on the merged ranges of one row; beyond it ``spans`` is null.
_MAX_WRITTEN = 2_000


@dataclass(slots=True)
class Reading:
    """The requests for one file during an execution.

    Attributes
    ----------
    requested : int
        Bytes requested.
    requests : int
        Number of requests.
    ranges : int
        Number of byte ranges in these requests.
    open_seconds : float or None
        Time that opening the file took; None if no opening was observed.
    spans : list of (int, int) or None
        Start and stop of each range; None if they are not completely known.
    """

    requested: int = 0
    requests: int = 0
    ranges: int = 0
    open_seconds: float | None = None
    spans: list[tuple[int, int]] | None = field(default_factory=list)


@dataclass(slots=True)
class SeenChunk:
    """A chunk of a file from which an execution builds coffea's events.

    Attributes
    ----------
    factory : int
        Identity of the `NanoEventsFactory`.
    facts : dict
        Dataset, uri, tree, first and last entry.
    columns : list or None
        coffea's log of the columns that were read; it grows while events are processed.
    source : int
        Identity of uproot's source of the file; 0 after it was closed.
    build_seconds, process_seconds : float
        Time that building the events took, and processing them.
    ready : bool
        Whether the events were built.
    """

    factory: int
    facts: dict[str, Any]
    columns: Any
    source: int
    build_seconds: float
    process_seconds: float | None = None
    ready: bool = False


class LibraryUse:
    """Reads, chunks and phases of libraries during one execution.

    Phases are timed on the execution's own thread only. Bytes are counted on every thread to
    which a library copies the execution's context.

    Parameters
    ----------
    thread : int
        Identity of the execution's thread.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._lock = threading.Lock()
        self.readings: dict[str, Reading] = {}
        self.chunks: list[SeenChunk] = []
        #: Identities of sources whose earlier requests were added once; None if the probes were
        #: in place before the execution used the library.
        self.caught_up: set[int] | None = None
        self._opening: float | None = None
        self._since: float | None = None
        self._phase: str | None = None

    def add(  # noqa: PLR0913
        self,
        path: str,
        *,
        requested: int = 0,
        requests: int = 0,
        ranges: int = 0,
        span: list[tuple[int, int]] | None = None,
        ranges_known: bool = True,
    ) -> None:
        """Add requests for a file.

        Parameters
        ----------
        path : str
            Path or URL of the file.
        requested : int, optional
            Bytes requested.
        requests, ranges : int, optional
            Number of requests, and of byte ranges in them.
        span : list of (int, int), optional
            Start and stop of each requested range.
        ranges_known : bool, optional
            Whether ``span`` is complete.
        """
        with self._lock:
            reading = self.readings.setdefault(path, Reading())
            reading.requested += requested
            reading.requests += requests
            reading.ranges += ranges
            if not requested or reading.spans is None:
                return
            if span is None or not ranges_known or len(reading.spans) + len(span) > MAX_SPANS:
                reading.spans = None
            else:
                reading.spans += span

    def _now(self) -> float | None:
        """Return the time in seconds on the execution's own thread; None on any other."""
        return time.perf_counter() if threading.get_ident() == self._thread else None

    def opening(self) -> None:
        """Note that a file is about to be opened."""
        self._opening = self._now()

    def opened(self, path: str) -> None:
        """Note that the file is open, and exclude the time from the phase that is under way."""
        now, began = self._now(), self._opening
        if now is None or began is None:
            return
        self._opening = None
        with self._lock:
            reading = self.readings.setdefault(path, Reading())
            reading.open_seconds = (reading.open_seconds or 0.0) + now - began
        if self._since is not None:
            self._since += now - began

    @property
    def is_building(self) -> bool:
        """Whether the calling thread is building events."""
        return self._phase == "build" and threading.get_ident() == self._thread

    def building(self) -> None:
        """Note that a factory of events is about to be made."""
        now = self._now()
        if now is not None:
            self._leave(now)
            self._phase, self._since = "build", now

    def seen(self, factory: int, facts: dict[str, Any], columns: Any, source: int) -> None:
        """Note that a factory exists, with the facts of its chunk."""
        now = self._now()
        if now is not None and self._since is not None:
            self.chunks.append(SeenChunk(factory, facts, columns, source, now - self._since))
            self._phase = self._since = None

    def making(self, factory: int) -> None:
        """Note that a factory is about to make events."""
        now = self._now()
        if now is not None and self._is_last(factory) and not self.chunks[-1].ready:
            self._phase, self._since = "build", now

    def ready(self, factory: int) -> None:
        """Note that the events are built."""
        now = self._now()
        if now is None or self._since is None or not self._is_last(factory):
            return
        chunk = self.chunks[-1]
        chunk.build_seconds += now - self._since
        chunk.ready = True
        self._phase, self._since = "process", now

    def closing(self, source: int) -> None:
        """Note that a source is about to be closed: its events have been processed.

        The garbage collector may close it at any time, also while the next chunk is being built.
        """
        now = self._now()
        if now is not None and self.chunks and self.chunks[-1].source == source:
            if self._phase == "process":
                self._leave(now)
            self.chunks[-1].source = 0  # another object may reuse the identity

    def finish(self) -> None:
        """Note that the execution has ended."""
        self._leave(time.perf_counter())

    def _is_last(self, factory: int) -> bool:
        return bool(self.chunks) and self.chunks[-1].factory == factory

    def _leave(self, now: float) -> None:
        if self._phase == "process" and self._since is not None:
            chunk = self.chunks[-1]
            chunk.process_seconds = (chunk.process_seconds or 0.0) + now - self._since
        self._phase = self._since = None

    def reads(self) -> Iterator[dict[str, Any]]:
        """Yield the execution's rows of ``library_reads``, without the columns that name it."""
        with self._lock:
            readings = list(self.readings.items())
        for path, reading in readings:
            yield {
                "library": "uproot",
                "uri": located(path),
                "requested_bytes": reading.requested or None,
                "requests": reading.requests or None,
                "ranges": reading.ranges or None,
                "spans": _merged(reading.spans or None),
                "open_seconds": reading.open_seconds,
            }

    def seen_chunks(self) -> Iterator[dict[str, Any]]:
        """Yield the execution's rows of ``seen_chunks``, without the columns that name it."""
        for chunk in self.chunks:
            uri = chunk.facts["uri"]
            yield {
                **chunk.facts,
                "dataset": text_or_none(chunk.facts["dataset"]),
                "uri": None if uri is None else located(str(uri)),
                "columns": _columns(chunk.columns),
                "build_seconds": chunk.build_seconds if chunk.ready else None,
                "process_seconds": chunk.process_seconds,
            }


def located(path: str) -> str:
    """Return an absolute path, or a URL without credentials.

    >>> located("root://me:secret@host//store/x.root"), located("file:///data/x.root")
    ('root://***@host//store/x.root', '/data/x.root')
    """
    path = redact_path(path)
    scheme, separator, rest = path.partition("://")
    if separator and scheme != "file":
        return path
    return os.path.abspath(rest if separator else path)


def _columns(log: Any) -> str | None:
    """Return the columns in coffea's log of accesses as JSON; None without such a log."""
    if not isinstance(log, list):
        return None
    return json.dumps(sorted({str(getattr(entry, "branch", entry)) for entry in list(log)}))


def _merged(spans: list[tuple[int, int]] | None) -> str | None:
    """Return ranges as JSON, with touching ranges merged."""
    if spans is None:
        return None
    merged: list[list[int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return json.dumps(merged, separators=(",", ":")) if len(merged) <= _MAX_WRITTEN else None
