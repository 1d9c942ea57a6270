"""Gathering of static facts on a background thread, because it may take seconds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from dask_strata.recorder.pipeline import foreign_io
from dask_strata.recorder.pipeline.resource_usage import thread_read_bytes

#: Delay after the start of the recording: another process may be waiting for this one to start.
_AFTER_SECONDS = 0.1


class BackgroundTasks:
    """Runs actions one after another on its own thread, so that no flush waits for them.

    Parameters
    ----------
    name : str
        Name of the thread.
    call : callable
        Calls the action that it is given, and never raises.

    Attributes
    ----------
    cpu_seconds : float
        CPU time of the thread up to the end of its last finished action, in seconds.
    read_bytes : int
        Bytes that the thread has read from files until then.
    thread : threading.Thread
        The thread.

    Examples
    --------
    >>> tasks = BackgroundTasks("facts", lambda action: action())
    >>> tasks.append(lambda: print("gathered"))
    >>> tasks.start(); tasks.finish(seconds=10)
    gathered
    0
    """

    def __init__(self, name: str, call: Callable[[Callable[[], None]], None]) -> None:
        self.cpu_seconds = 0.0
        self.read_bytes = 0
        self._call = call
        self._pending: deque[Callable[[], None]] = deque()
        self._skip_delay = threading.Event()
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def append(self, action: Callable[[], None]) -> None:
        """Add an action; only before `start`."""
        self._pending.append(action)

    def start(self) -> None:
        """Start the thread, which begins after a short delay; do nothing without actions."""
        if self._pending:
            self.thread.start()

    def finish(self, seconds: float) -> int:
        """Wait until all actions are done; return how many are not.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        self._skip_delay.set()
        if self.thread.is_alive():
            self.thread.join(seconds)
        return len(self._pending)

    def _loop(self) -> None:
        self._skip_delay.wait(_AFTER_SECONDS)
        while self._pending:
            with foreign_io.operation():  # of unknown size: it may start processes and threads
                self._call(self._pending[0])
                self.read_bytes = thread_read_bytes()
            self._pending.popleft()
            self.cpu_seconds = time.thread_time()
