"""The thread that writes frames, so that no other thread waits for a disk or a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from dask_strata.recorder.pipeline import foreign_io
from dask_strata.schema.owners import waiting
from dask_strata.store.sinks import BACKLOG_BYTES, Sink


class WriterThread:
    """Writes frames to a sink on its own thread, from a queue with a bound on its bytes.

    Parameters
    ----------
    sink : Sink
        Destination of the frames; the thread closes it at its end.
    name : str
        Name of the thread.
    after_write : callable
        Called on the thread after each frame and each failed sync, for example to log an error.
    sync_interval : float, optional
        Shortest time between two syncs to disk, in seconds; by default there are none.

    Attributes
    ----------
    failed_syncs : dict of str to int
        Number of failed syncs by reason.
    thread : threading.Thread
        The thread.
    """

    def __init__(
        self,
        sink: Sink,
        name: str,
        after_write: Callable[[], None],
        sync_interval: float | None = None,
    ) -> None:
        self._sink = sink
        self._after_write = after_write
        self._sync_interval = sync_interval
        self._next_sync: float | None = None
        self.failed_syncs: dict[str, int] = {}
        self._queue: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self._n_put = self._n_written = 0
        self._dropped_rows = 0
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def put(self, frame: bytes, rows: int) -> None:
        """Add a frame to the queue; if the queue is full, drop the frame and count its rows.

        Parameters
        ----------
        frame : bytes
            The frame.
        rows : int
            Number of rows in it.
        """
        with self._lock:
            if self._waiting_bytes > BACKLOG_BYTES:
                self._dropped_rows += rows
                return
            self._waiting_bytes += len(frame)
            self._n_put += 1
        self._queue.put((frame, rows))

    def handed_over(self, seconds: float) -> bool:
        """Wait until all frames so far are written; return whether the sink has them.

        Do not call it on the writer thread itself.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        with self._written:
            n = self._n_put
            done = self._written.wait_for(lambda: self._n_written >= n, max(seconds, 0.0))
            return done and self._sink.error is None

    @property
    def dropped_rows(self) -> int:
        """Number of rows dropped so far, from the queue and by the sink."""
        return self._dropped_rows + self._sink.dropped_rows

    def close(self) -> None:
        """Make the thread write the queued frames, close the sink and end; does not wait."""
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended; on the thread itself do nothing.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout=seconds)

    def _loop(self) -> None:
        while (item := self._next()) is not None:
            if item:
                self._write(*item)
                with self._written:
                    self._waiting_bytes -= len(item[0])
                    self._n_written += 1
                    self._written.notify_all()
                self._after_write()
                if self._sync_interval is not None and self._next_sync is None:
                    self._next_sync = time.monotonic() + self._sync_interval
            if self._next_sync is not None and time.monotonic() >= self._next_sync:
                self._sync()
        if self._sync_interval is not None:
            self._sync()
        self._sink.close()

    def _write(self, frame: bytes, rows: int) -> None:
        sink = self._sink
        if sink.transport == "comm":  # sockets are not part of the kernel's accounting
            sink.write(frame, rows)
            return
        with foreign_io.operation() as measure:
            before = sink.written_bytes
            sink.write(frame, rows)
            # A failed write may have written a part, and a relayed frame contains a label.
            if sink.error is None and sink.transport == "file":
                measure(0, sink.written_bytes - before)

    @waiting
    def _next(self) -> tuple[bytes, int] | tuple[()] | None:
        """Return the next frame; an empty tuple if a sync is due, None at the end."""
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
            self._after_write()
