"""SIGTERM: the last rows of a process that would die of the signal at once.

Batch systems, preemption and MPI send SIGTERM to all processes of a job. The commands ``dask
scheduler`` and ``dask worker`` handle it, but the worker's process under a nanny, scripts and MPI
ranks die of it. In such a process `guard` installs a handler that ends the recordings and then
lets the signal have its usual effect, so that the exit status stays the same. Handlers of Dask or
of the user are never replaced.

Python runs a handler on the main thread, between two bytecodes: code that holds the interpreter's
lock for long delays it, and the sender's SIGKILL may arrive first.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextlib
import ctypes
import os
import signal
import threading
import time
from typing import Any

from dask_strata import flushing

REASON = "SIGTERM"

#: Longest delay of the process's end. Shorter than any grace period before SIGKILL that is usual:
#: Slurm and Kubernetes 30 s, PBS and LSF 10 s, a closing nanny under ``dask worker`` 8 s.
_SECONDS = 5.0

#: Longest wait for other processes, if the process of their scheduler gets the signal.
_CLUSTER_SECONDS = 2.0

#: Process id of the first process of a container, in which SIGTERM has no effect without a handler.
_INIT = 1

#: Dask's own handler, if it was installed when a recording started.
_handler_of_dask: Any = None

_ending = False


def guard() -> None:
    """End the recordings of this process on SIGTERM, if the signal would kill it at once."""
    global _handler_of_dask  # noqa: PLW0603  there is one handler in a process
    handler = signal.getsignal(signal.SIGTERM)
    if handler is signal.SIG_DFL and os.getpid() != _INIT:
        _update_soon()
    elif "caught_signal" in _names_of(handler):
        _handler_of_dask = handler


def release() -> None:
    """Remove the handler after the last recording of this process, unless it was replaced."""
    if signal.getsignal(signal.SIGTERM) is _on_signal and not flushing.recorders():
        _update_soon()


def received() -> str | None:
    """Return ``"SIGTERM"`` if Dask's own handler got the signal, None if not or if unknown."""
    names = _names_of(_handler_of_dask)
    if "caught_signal" not in names:
        return None
    try:
        signum = _handler_of_dask.__closure__[names.index("caught_signal")].cell_contents
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return REASON if signum == signal.SIGTERM else None


def _names_of(handler: Any) -> tuple[str, ...]:
    """Return the names of the variables that a handler shares with Dask's `wait_for_signals`."""
    if getattr(handler, "__module__", None) != "distributed._signals":
        return ()
    return tuple(getattr(getattr(handler, "__code__", None), "co_freevars", ()))


def _update() -> None:
    """Install the handler if the process is recorded, else remove it; call on the main thread."""
    handler, recorded = signal.getsignal(signal.SIGTERM), bool(flushing.recorders())
    if handler is signal.SIG_DFL and recorded:
        signal.signal(signal.SIGTERM, _on_signal)
    elif handler is _on_signal and not recorded:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def _pending_update(_: Any) -> int:
    with contextlib.suppress(Exception):
        _update()
    return 0


def _update_soon() -> None:
    """Call `_update` on the main thread, where alone Python can set handlers."""
    if threading.current_thread() is threading.main_thread():
        _update()
    else:
        ctypes.pythonapi.Py_AddPendingCall(_pending_update, None)


def _on_signal(signum: int, _: Any) -> None:
    """End the recordings, then let the signal have its usual effect."""
    global _ending  # noqa: PLW0603  as above
    if _ending:
        return
    _ending = True
    waits = True
    try:
        recorders = flushing.recorders()
        loop = flushing.running_loop()
        # The interrupted code may hold locks of `threading`, so that only this lock is safe here.
        done = _thread.allocate_lock()
        done.acquire()
        if recorders:
            _thread.start_new_thread(_finish, (recorders, loop, done))
            waits = not any(r.loop is loop and r.uses_loop for r in recorders)
            if waits:
                done.acquire(timeout=_SECONDS)
            else:  # this thread's event loop has to send the rows
                _thread.start_new_thread(_end_later, (done, signum))
    except RuntimeError:  # no thread can be started: the interpreter ends
        waits = True
    finally:
        signal.signal(signum, signal.SIG_DFL)
        if waits:
            os.kill(os.getpid(), signum)


def _end_later(done: Any, signum: int) -> None:
    done.acquire(timeout=_SECONDS)
    os.kill(os.getpid(), signum)


def _finish(recorders: list[flushing.Recorder], blocked: Any, done: Any) -> None:
    """End recordings, those of a scheduler with the rest of its cluster; never raises."""
    until = time.monotonic() + _SECONDS
    try:
        stops = [
            asyncio.run_coroutine_threadsafe(r.stop_cluster(REASON), r.loop)
            for r in recorders
            if r.stop_cluster is not None and r.loop not in (None, blocked) and r.loop.is_running()
        ]
        concurrent.futures.wait(stops, _CLUSTER_SECONDS)
        for recorder in recorders:
            recorder.finish(REASON, wait=False)
        for recorder in recorders:
            recorder.join(until - time.monotonic())
    except Exception:  # noqa: BLE001, S110  the process ends, and logging could block
        pass
    finally:
        done.release()
