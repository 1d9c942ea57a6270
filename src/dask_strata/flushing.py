"""`flush`: write everything recorded so far, before something that may end the process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Protocol
from weakref import WeakValueDictionary

logger = logging.getLogger("dask_strata")


class Recorder(Protocol):
    """What `flush` needs of the recorder of one Dask server or client."""

    loop: asyncio.AbstractEventLoop | None

    @property
    def is_here(self) -> bool:
        """Whether this is the recorded process itself and not a fork of it."""

    def hurry(self) -> None:
        """Flush soon, without waiting."""

    def flush_all(self, seconds: float) -> bool:
        """Flush, wait at most so many seconds, and return whether all rows were written."""


#: Recorders of this process by the name of what they record; none in a process without one.
_recorders: WeakValueDictionary[str, Recorder] = WeakValueDictionary()


def register(name: str, recorder: Recorder) -> None:
    """Make `flush` cover a recorder, until `unregister`."""
    _recorders[name] = recorder


def unregister(name: str) -> None:
    """Forget a recorder that has written its last row."""
    _recorders.pop(name, None)


def recorders() -> list[Recorder]:
    """Return the recorders of this process; a fork of a recorded process has none."""
    found = [reference() for reference in _recorders.valuerefs()]
    return [recorder for recorder in found if recorder is not None and recorder.is_here]


def flush(timeout: float = 5.0) -> bool:
    """Write everything recorded in this process so far; return when the operating system has it.

    A later SIGKILL loses none of it. In a task this covers the worker's record; where a client
    runs, the client's. Other processes are not flushed. A process that cannot write the run's
    folder sends its rows to the scheduler, and this returns when they have arrived. Power loss
    is not covered: see the setting ``fsync-interval``.

    On the event loop of a recorded worker, scheduler or client it does not wait: it asks the
    recorder to hurry and returns False. A coroutine there can write
    ``await asyncio.to_thread(dask_strata.flush)``.

    Parameters
    ----------
    timeout : float, optional
        Seconds to wait for a disk or network that does not answer.

    Returns
    -------
    bool
        Whether everything was written; True where nothing is recorded. A full disk, for example,
        makes it False. Recording never makes this raise.

    Raises
    ------
    TypeError
        The timeout is not a number.
    ValueError
        The timeout is negative or not a number of seconds.

    Examples
    --------
    >>> flush()  # nothing is recorded in this process
    True
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds from 0 on, not {timeout!r}")
    try:
        return _flush(min(timeout, threading.TIMEOUT_MAX / 2))
    except Exception as error:  # noqa: BLE001  a recorder must not fail a task
        logger.warning("dask-strata could not flush: %s: %s", type(error).__name__, error)
        return False


def _flush(timeout: float) -> bool:
    found = recorders()
    loop = _running_loop()
    if loop is not None and any(recorder.loop is loop for recorder in found):
        for recorder in found:
            recorder.hurry()
        return False
    until = time.monotonic() + timeout
    # Flush each recorder, even if an earlier one does not finish.
    done = [recorder.flush_all(max(until - time.monotonic(), 0.0)) for recorder in found]
    return all(done)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
