"""What is told of a process once, gathered beside its recording: it may take seconds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

#: How long after the start: who starts a process waits for it, and for the interpreter.
_AFTER_SECONDS = 0.1


class BackgroundTasks:
    """Runs what gathers facts on a thread of its own, so that no flush waits for it.

    Parameters
    ----------
    name : str
        Name of the thread.
    run : callable
        Runs one of them, and does not raise.

    Attributes
    ----------
    cpu_seconds : float
        CPU time that the thread has taken, up to the last of what it ran.
    """

    def __init__(self, name: str, run: Callable[[Callable[[], None]], None]) -> None:
        self.cpu_seconds = 0.0
        self._run = run
        self._left: deque[Callable[[], None]] = deque()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._gather, name=name, daemon=True)

    def append(self, action: Callable[[], None]) -> None:
        """Add what is to be run; before `start`."""
        self._left.append(action)

    def start(self) -> None:
        """Begin, in a moment."""
        if self._left:
            self._thread.start()

    def finish(self, seconds: float) -> int:
        """Wait for the rest, for so long at most; return how many are not done by then."""
        self._hurry.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return len(self._left)

    def _gather(self) -> None:
        self._hurry.wait(_AFTER_SECONDS)
        while self._left:
            self._run(self._left[0])
            self._left.popleft()
            self.cpu_seconds = time.thread_time()
