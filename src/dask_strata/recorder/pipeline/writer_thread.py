"""The thread that writes, so that nobody waits for a disk or a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from dask_strata.store.sinks import BACKLOG_BYTES, Sink


class WriterThread:
    """Hands frames to a sink on a thread of its own; frames wait within a bound.

    Parameters
    ----------
    sink : Sink
        Where frames go; closed when the pump is.
    name : str
        Name of the thread.
    after : callable
        Called after each frame and each failure, on that thread, for example to tell of trouble.
    sync_interval : float, optional
        How often, in seconds, what was written is asked onto the disk at most; never by default.

    Attributes
    ----------
    failed_syncs : dict of str to int
        Why the disk could not be asked, and how many times.
    """

    def __init__(
        self,
        sink: Sink,
        name: str,
        after: Callable[[], None],
        sync_interval: float | None = None,
    ) -> None:
        self._sink = sink
        self._after = after
        self._interval = sync_interval
        self._next_sync: float | None = None
        self.failed_syncs: dict[str, int] = {}
        self._queue: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self._n_put = self._n_written = 0
        self._dropped_rows = 0
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, frame: bytes, rows: int) -> None:
        """Take a frame; when the sink has been stuck for long, drop it and count its rows."""
        with self._lock:
            if self._waiting_bytes > BACKLOG_BYTES:
                self._dropped_rows += rows
                return
            self._waiting_bytes += len(frame)
            self._n_put += 1
        self._queue.put((frame, rows))

    def handed_over(self, seconds: float) -> bool:
        """Wait until all that was put so far is written, for so long at most; tell whether it is.

        Not for the writing thread itself.
        """
        with self._written:
            n = self._n_put
            done = self._written.wait_for(lambda: self._n_written >= n, max(seconds, 0.0))
            return done and self._sink.trouble is None

    @property
    def dropped_rows(self) -> int:
        """Rows that were let go so far, here and in the sink."""
        return self._dropped_rows + self._sink.dropped_rows

    def close(self) -> None:
        """Write what waits, then close the sink; see `join`."""
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until everything is written, for so long at most."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=seconds)

    def _loop(self) -> None:
        while (item := self._next()) is not None:
            if item:
                self._sink.write(*item)
                with self._written:
                    self._waiting_bytes -= len(item[0])
                    self._n_written += 1
                    self._written.notify_all()
                self._after()
                if self._interval is not None and self._next_sync is None:
                    self._next_sync = time.monotonic() + self._interval
            if self._next_sync is not None and time.monotonic() >= self._next_sync:
                self._sync()
        if self._interval is not None:
            self._sync()
        self._sink.close()

    def _next(self) -> tuple[bytes, int] | tuple[()] | None:
        """Return the next frame, nothing when it is time for the disk, None at the end."""
        if self._next_sync is None:
            return self._queue.get()
        try:
            return self._queue.get(timeout=max(self._next_sync - time.monotonic(), 0.0))
        except Empty:
            return ()

    def _sync(self) -> None:
        self._next_sync = None
        try:
            self._sink.sync()
        except OSError as error:
            reason = f"{type(error).__name__}: {error.strerror or error}"
            self.failed_syncs[reason] = self.failed_syncs.get(reason, 0) + 1
            self._after()
