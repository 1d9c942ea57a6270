"""Handing over, now, what was seen so far: before something that may end the process."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

logger = logging.getLogger("dask_strata")


def flush(timeout: float = 5.0) -> bool:
    """Return when the operating system has all that was seen in this process so far.

    A SIGKILL afterwards loses none of it. In a task that is what its worker has seen; where a
    client is, what the client has, and so on: other processes are not asked. A process that
    cannot write the run's folder hands its records to the scheduler's process, and this returns
    when they are there. Power loss is another matter: see the setting ``fsync-interval``.

    On the event loop that a recorded worker, scheduler or client runs on nothing is waited for:
    the recorder is told to hurry, and the answer is False. A coroutine there may write
    ``await asyncio.to_thread(dask_strata.flush)``.

    Parameters
    ----------
    timeout : float, optional
        How long to wait, in seconds, for a disk or network that is stuck.

    Returns
    -------
    bool
        Whether all is handed over; True where nobody records. A full disk, for example, makes it
        False. Nothing is raised because of the recording.

    Raises
    ------
    TypeError, ValueError
        The timeout is no number of seconds.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds from 0 on, not {timeout!r}")
    try:
        return _flush(min(timeout, threading.TIMEOUT_MAX / 2))
    except Exception as error:  # noqa: BLE001  nothing of ours may fail a task
        logger.warning("dask-strata could not flush: %s: %s", type(error).__name__, error)
        return False


def _flush(timeout: float) -> bool:
    # Nobody records in a process that has not loaded this.
    module = sys.modules.get("dask_strata.recorder.engine")
    engines: list[Any] = [] if module is None else module.running()
    loop = _running_loop()
    if loop is not None and any(engine.loop is loop for engine in engines):
        for engine in engines:
            engine.hurry()
        return False
    until = time.monotonic() + timeout
    # Each of them, also when an earlier one is stuck.
    done = [engine.flush_all(max(until - time.monotonic(), 0.0)) for engine in engines]
    return all(done)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
