"""Writing all rows recorded so far, before code that may kill the process: see `flush`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol
from weakref import WeakValueDictionary

logger = logging.getLogger("dask_strata")


class Recorder(Protocol):
    """The interface of a recorder that `flush` and the end on SIGTERM need."""

    loop: asyncio.AbstractEventLoop | None
    stop_cluster: Callable[[str], Coroutine[Any, Any, None]] | None

    @property
    def in_own_process(self) -> bool:
        """Whether this is the recorded process itself, and not a fork of it."""

    def flush_soon(self) -> None:
        """Trigger a flush on the recorder's thread, without waiting for it."""

    def flush_all(self, seconds: float) -> bool:
        """Flush, wait up to this many seconds, and return whether all rows were written."""

    @property
    def uses_loop(self) -> bool:
        """Whether the event loop sends the rows."""

    def finish(self, reason: str, *, wait: bool = True) -> None:
        """End the recording."""

    def join(self, seconds: float) -> None:
        """Wait up to this many seconds for the end of the recording."""


#: Recorders of this process, by process id in the record.
_recorders: WeakValueDictionary[str, Recorder] = WeakValueDictionary()


def register(name: str, recorder: Recorder) -> None:
    """Make `flush` include a recorder, until `unregister`.

    Parameters
    ----------
    name : str
        Id of the recorded server or client.
    recorder : Recorder
        Its recorder; a weak reference to it is kept.
    """
    _recorders[name] = recorder


def unregister(name: str) -> None:
    """Exclude a recorder that has written its last row.

    Parameters
    ----------
    name : str
        As in `register`; an unknown name is ignored.
    """
    _recorders.pop(name, None)


def recorders() -> list[Recorder]:
    """Return the active recorders of this process; a fork of a recorded process has none.

    >>> recorders()
    []
    """
    found = [reference() for reference in _recorders.valuerefs()]
    return [recorder for recorder in found if recorder is not None and recorder.in_own_process]


def flush(timeout: float = 5.0) -> bool:
    """Write all rows that this process has recorded so far, and wait until they are written.

    A later SIGKILL loses none of these rows. In a task this flushes the worker's record, in the
    process of a client the client's. Other processes are not flushed. A process that cannot write
    the run's folder sends its rows to the scheduler; then this waits until they have arrived.
    Rows can still be lost in a power failure: see the setting ``fsync-interval``.

    On the event loop of a recorded worker, scheduler or client this does not wait: it triggers
    a flush and returns False. In a coroutine there, use
    ``await asyncio.to_thread(dask_strata.flush)``.

    Parameters
    ----------
    timeout : float, optional
        Longest time to wait for the disk or the network, in seconds.

    Returns
    -------
    bool
        Whether all rows were written; True if nothing is recorded in this process. It is False,
        for example, if the disk is full. An error in the recorder is logged, never raised.

    Raises
    ------
    TypeError
        The timeout is not a number.
    ValueError
        The timeout is negative or NaN.

    Examples
    --------
    >>> flush()  # nothing is recorded in this process
    True
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more, not {timeout!r}")
    try:
        return _flush(min(timeout, threading.TIMEOUT_MAX / 2))
    except Exception as error:  # noqa: BLE001  an error of the recorder must not fail a task
        logger.warning("dask-strata could not flush: %s: %s", type(error).__name__, error)
        return False


def _flush(timeout: float) -> bool:
    found = recorders()
    loop = running_loop()
    if loop is not None and any(recorder.loop is loop for recorder in found):
        for recorder in found:
            recorder.flush_soon()
        return False
    until = time.monotonic() + timeout
    # Flush each recorder, even if an earlier one does not finish.
    done = [recorder.flush_all(max(until - time.monotonic(), 0.0)) for recorder in found]
    return all(done)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
