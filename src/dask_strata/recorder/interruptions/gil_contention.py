"""Waits for the GIL, as Dask's system monitor measures them with the package gilknocker.

A thread of gilknocker, which runs no Python code, requests the GIL every millisecond. Dask starts
it if the package is installed (`distributed.admin.system-monitor.gil.enabled`); the share of the
time in which the thread waited is among the values of each sample of the monitor.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from dask_strata.recorder.pipeline.source import Source
from dask_strata.store.segments.frames import Batch

_NAME = "gil_contention"


class GilContention(Source):
    """Make rows of ``gil_contention`` from the samples of a server's system monitor.

    Parameters
    ----------
    server : distributed.Scheduler or distributed.Worker
        The server.
    worker : str, optional
        Address of the server, if it is a worker.
    """

    def __init__(self, server: Any, worker: str | None = None) -> None:
        self._server, self._worker = server, worker
        self._rows: deque[dict[str, Any]] = deque()
        monitor = getattr(server, "monitor", None)
        measured = getattr(monitor, "monitor_gil_contention", None)
        #: Reason for which nothing is recorded, which the next `rows` records as a loss.
        self._loss = None if isinstance(measured, bool) else "Dask's monitor has no such value"
        quantities = getattr(monitor, "quantities", {})
        self._times = quantities.get("time", deque())
        self._shares = quantities.get(_NAME, deque()) if measured else deque()
        self._last = self._times[-1] if self._times else 0.0

    def sample(self) -> None:
        """Take the samples of the monitor since the last call, on the event loop: it adds them."""
        if self._shares:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._server.loop.add_callback(self._take)

    def remove(self) -> None:
        """Take the last samples."""
        self._take()

    def detach(self) -> None:
        """Take the last samples."""
        self.remove()

    def _take(self) -> None:
        found = list(self._new())
        for start, stop, share in reversed(found):
            self._rows.append(
                {
                    "start": int(start * 1e9),
                    "stop": int(stop * 1e9),
                    "worker": self._worker,
                    "contention": share,
                    "seconds": share * (stop - start),
                }
            )
        if found:
            self._last = found[0][1]

    def _new(self) -> Iterator[tuple[float, float, float]]:
        """Yield start, stop and share of the intervals since the last call, the last one first."""
        starts = islice(reversed(self._times), 1, None)
        for start, stop, share in zip(
            starts, reversed(self._times), reversed(self._shares), strict=False
        ):
            if stop <= self._last or start >= stop:  # the latter if the clock was set back
                return
            yield start, stop, share

    def rows(self) -> Iterable[Batch]:
        """Return the intervals since the last call."""
        if self._loss is not None:
            loss = {"time": time.time_ns(), "what": _NAME, "reason": self._loss}
            self._loss = None
            yield Batch.of_rows("losses", [loss])
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if rows:
            yield Batch.of_rows(_NAME, rows)
