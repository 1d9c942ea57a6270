"""The lag of an event loop: the time until it runs a callback."""

from __future__ import annotations

import contextlib
import time
from typing import Any


class LoopLag:
    """Measure the lag of one event loop from another thread.

    Parameters
    ----------
    loop : tornado.ioloop.IOLoop
        The loop.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> callbacks = []
    >>> lag = LoopLag(SimpleNamespace(add_callback=callbacks.append))
    >>> lag.measure() is None
    True
    >>> callbacks.pop()()  # the loop runs the callback
    >>> 0 <= lag.measure() < 60
    True
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._requested: float | None = None
        self._last: float | None = None

    def measure(self) -> float | None:
        """Return the last lag in seconds and request the next measurement.

        Return None before the first measurement. While the loop has not run the callback, return
        the time since the request.
        """
        now = time.monotonic()
        if self._requested is not None:
            return now - self._requested
        last, self._last = self._last, None
        self._requested = now
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.add_callback(self._run_by_loop)
        return last

    def _run_by_loop(self) -> None:
        if self._requested is not None:
            self._last = time.monotonic() - self._requested
            self._requested = None
