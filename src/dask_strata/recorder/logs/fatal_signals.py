"""Python's `faulthandler` in a process whose output is recorded.

Virtual machines and runtimes of other languages (Java, Julia) use signals such as SIGSEGV for
themselves. `faulthandler` would take their handlers' place, and put back older ones when it is
turned off: so it is turned on only if nobody handles these signals, and off only if nobody else has
begun to.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys

#: The signals that `faulthandler` handles.
_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGFPE", "SIGBUS", "SIGILL"})

#: Pointers that are enough for a `struct sigaction` of any system.
_POINTERS = 64


class Tracebacks:
    """Tracebacks of fatal signals on a descriptor, until `end`.

    Parameters
    ----------
    descriptor : int
        Standard error.
    """

    def __init__(self, descriptor: int) -> None:
        self._handlers: tuple[int | None, ...] | None = None
        if faulthandler.is_enabled() or any(_handlers() or (1,)):
            return
        with contextlib.suppress(RuntimeError, OSError):
            faulthandler.enable(descriptor, all_threads=False)
            self._handlers = _handlers()

    def end(self) -> None:
        """Turn `faulthandler` off, if this has turned it on and its handlers are still there."""
        if self._handlers is not None and self._handlers == _handlers():
            faulthandler.disable()
        self._handlers = None


def _handlers() -> tuple[int | None, ...] | None:
    """Return the handlers of the signals, None for the default; None if they are unknown."""
    if not sys.platform.startswith(("linux", "darwin")):  # elsewhere the handler is not first
        return None
    try:
        import ctypes  # it may be missing

        sigaction = ctypes.CDLL(None).sigaction
    except (ImportError, OSError, AttributeError):
        return None
    found = []
    for number in (each for each in signal.Signals if each.name in _SIGNALS):
        action = (ctypes.c_void_p * _POINTERS)()
        if sigaction(int(number), None, action):
            return None
        found.append(action[0])
    return tuple(found)
