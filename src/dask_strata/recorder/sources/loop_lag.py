"""How late an event loop is: the time until it runs a callback."""

from __future__ import annotations

import contextlib
import time
from typing import Any


class LoopLag:
    """Measures one event loop from another thread.

    Parameters
    ----------
    loop : tornado.ioloop.IOLoop
        The loop.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._asked: float | None = None
        self._last: float | None = None

    def measure(self) -> float | None:
        """Return the last lag in seconds, and ask for the next; None before the first.

        While the loop has not answered, the time it has been silent is the lag.
        """
        now = time.monotonic()
        if self._asked is not None:
            return now - self._asked
        last, self._last = self._last, None
        self._asked = now
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.add_callback(self._answer)
        return last

    def _answer(self) -> None:
        if self._asked is not None:
            self._last = time.monotonic() - self._asked
            self._asked = None
