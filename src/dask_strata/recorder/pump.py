"""The thread that writes, so that nobody waits for a disk or a network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from dask_strata.store.writer import BACKLOG_BYTES, Sink


class Pump:
    """Hands frames to a sink on a thread of its own; frames wait within a bound.

    Parameters
    ----------
    sink : Sink
        Where frames go; closed when the pump is.
    name : str
        Name of the thread.
    after : callable
        Called after each frame, on that thread, for example to tell of trouble.
    """

    def __init__(self, sink: Sink, name: str, after: Callable[[], None]) -> None:
        self._sink = sink
        self._after = after
        self._queue: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
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
        self._queue.put((frame, rows))

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
        while (item := self._queue.get()) is not None:
            self._sink.write(*item)
            with self._lock:
                self._waiting_bytes -= len(item[0])
            self._after()
        self._sink.close()
