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

import psutil

from dask_strata import flushing

REASON = "SIGTERM"

#: Longest delay of the process's end. Shorter than any grace period before SIGKILL that is usual:
#: Slurm and Kubernetes 30 s, PBS and LSF 10 s, a closing nanny under ``dask worker`` 8 s.
_SECONDS = 5.0

#: Longest wait for other processes, if the process of their scheduler gets the signal.
_CLUSTER_SECONDS = 2.0

#: Longest wait for the event loop's present callback, before the recordings end nevertheless.
_LOOP_SECONDS = 1.0

#: Longest delay of a process that its nanny kills because of its memory: after 100 ms by default
#: the nanny sends SIGKILL and logs a warning.
_MEMORY_SECONDS = 0.03

#: Memory at the signal, as a share of the nanny's bound, that counts as beyond it: some memory may
#: have been freed since the nanny looked.
_NEAR_BOUND = 0.9

#: Process id of the first process of a container, in which SIGTERM has no effect without a handler.
_INIT = 1

#: Dask's own handler, if it was installed when a recording started.
_handler_of_dask: Any = None

#: Whether the signal has arrived, and whether it is to have its usual effect now.
_ending = _over = False

#: Acquired by the thread that ends the recordings.
_claim = _thread.allocate_lock()


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


def _pending_update(_: Any) -> int:
    # Python calls this between two lines of Dask, where nothing may be raised.
    with contextlib.suppress(Exception):
        _update()
    return 0


#: The function as a pointer, which must exist as long as the call may be pending.
_PENDING_UPDATE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_pending_update)


def _update_soon() -> None:
    """Call `_update` on the main thread, where alone Python can set handlers."""
    if threading.current_thread() is threading.main_thread():
        _update()
    else:
        ctypes.pythonapi.Py_AddPendingCall(_PENDING_UPDATE, None)


def _on_signal(signum: int, _: Any) -> None:
    """End the recordings, then let the signal have its usual effect."""
    global _ending  # noqa: PLW0603  a process ends once
    if _over or not flushing.recorders():
        _die(signum)
        return
    if _ending:
        return
    _ending = True
    try:
        if _killed_for_memory():
            _flush_and_die(signum)
            return
        loop = flushing.running_loop()
        if loop is None:
            _end(signum)
        else:
            # Between two callbacks Dask's state and its counters agree, and no lock is held.
            _thread.start_new_thread(_end_without_loop, (signum, loop))
            loop.call_soon_threadsafe(_end, signum)
    except Exception:  # noqa: BLE001  such as no new thread: the process must end, recorded or not
        _die(signum)


def _after_fork() -> None:
    """Remove the handler: a fork is not recorded, and code in C would delay its end."""
    if signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _killed_for_memory() -> bool:
    """Return whether the process uses so much memory that its nanny has sent the signal."""
    bounds = [r.kill_bytes for r in flushing.recorders() if r.kill_bytes is not None]
    if not bounds:
        return False
    return bool(psutil.Process().memory_info().rss >= min(bounds) * _NEAR_BOUND)


def _flush_and_die(signum: int) -> None:
    """Write the rows so far if that is fast: the memory must be free soon."""
    recorders, done = flushing.recorders(), _thread.allocate_lock()
    done.acquire()

    def flush() -> None:
        for recorder in recorders:
            recorder.flush_all(_MEMORY_SECONDS)
        done.release()

    _thread.start_new_thread(flush, ())
    done.acquire(timeout=_MEMORY_SECONDS)
    _die(signum)


def _end(signum: int) -> None:
    """End the recordings, and with them the process; called on the main thread."""
    if not _claim.acquire(blocking=False):
        return
    recorders, loop = flushing.recorders(), flushing.running_loop()
    done = _start_finish(recorders, loop)
    if any(r.uses_loop and r.loop is loop for r in recorders):
        # This event loop has to send the rows, so it must go on.
        _thread.start_new_thread(_end_later, (signum, done))
        return
    done.acquire(timeout=_SECONDS)
    _die(signum)


def _end_without_loop(signum: int, loop: Any) -> None:
    """End the recordings from another thread, if a callback blocks the event loop for too long."""
    time.sleep(_LOOP_SECONDS)
    if _claim.acquire(blocking=False):
        _end_later(signum, _start_finish(flushing.recorders(), loop))


def _end_later(signum: int, done: Any) -> None:
    """Send this process the signal again when all is written, or the time is over."""
    global _over  # noqa: PLW0603  as above
    done.acquire(timeout=_SECONDS)
    _over = True
    os.kill(os.getpid(), signum)


def _die(signum: int) -> None:
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _start_finish(recorders: list[flushing.Recorder], blocked: Any) -> Any:
    """Call `_finish` on a new thread; return a lock that it releases at its end."""
    # The interrupted code may hold locks of `threading`, so that only a new lock is safe.
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(_finish, (recorders, blocked, done))
    return done


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
