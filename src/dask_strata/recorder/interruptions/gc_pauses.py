"""Collections of Python's garbage collector that took long.

The interpreter calls the functions in `gc.callbacks` on the thread that runs the collection, which
may be any thread, within any allocation, also one that holds a lock of the recorder. So the
callback reads the clock, and appends to a deque if the collection took long; it takes no lock. The
recorder's thread makes the rows.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from time import monotonic_ns
from typing import Any, NamedTuple

from dask_strata.metrics import current_execution
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import wire_keys
from dask_strata.store.segments.frames import Batch

#: Shortest collection with a row, in nanoseconds.
LEAST_NS = 10_000_000

#: Values that the interpreter passes to the callback at the end of a collection.
_NAMES = ("generation", "collected", "uncollectable")


class _Pause(NamedTuple):
    """A collection; its times are on the monotonic clock."""

    start: int
    stop: int
    info: dict[str, int]
    thread: int
    execution: Any


class GcPauses(Source):
    """Make rows of ``gc_pauses``, from creation until `remove`.

    Of several recordings of one run in a process, the first has the rows; when it ends, the next.

    Parameters
    ----------
    run_id : str
        Id of the run.
    worker : str, optional
        Address of the worker, for the rows.
    """

    def __init__(self, run_id: str, worker: str | None = None) -> None:
        self._run_id, self._worker = run_id, worker
        self._pauses: deque[_Pause] = deque()
        with _lock:
            _recordings.append(self)
            _choose()

    def remove(self) -> None:
        """End the measurements; the last recording of the process removes the callback."""
        with _lock:
            if self in _recordings:
                _recordings.remove(self)
            _choose()

    def detach(self) -> None:
        """End the measurements."""
        self.remove()

    def rows(self) -> Iterable[Batch]:
        """Return the collections since the last call."""
        # They are measured on the monotonic clock, which no adjustment moves.
        offset = time.time_ns() - monotonic_ns()
        pauses = [self._pauses.popleft() for _ in range(len(self._pauses))]
        if not pauses:
            return
        executions = [pause.execution for pause in pauses]
        keys = iter(wire_keys([each.key for each in executions if each is not None]))
        rows = [
            {
                "start": pause.start + offset,
                "stop": pause.stop + offset,
                "worker": self._worker,
                **{name: pause.info.get(name) for name in _NAMES},
                "seconds": (pause.stop - pause.start) / 1e9,
                "thread": pause.thread,
                "key": None if each is None else next(keys),
                "run_id": None if each is None else each.run_id,
            }
            for pause, each in zip(pauses, executions, strict=True)
        ]
        yield Batch.of_rows("gc_pauses", rows)


#: Recordings of this process, in the order of their starts.
_recordings: list[GcPauses] = []
#: Queues of the recordings that have the rows: one of each run.
_queues: tuple[deque[_Pause], ...] = ()
_lock = threading.Lock()
#: When the present collection began. Collections do not overlap.
_began = 0


def _on_collection(phase: str, info: dict[str, int]) -> None:
    global _began  # noqa: PLW0603  a collection has no object to keep its start in
    if phase == "start":
        _began = monotonic_ns()
        return
    now = monotonic_ns()
    if now - _began >= LEAST_NS and _began:
        execution = current_execution.get()
        if execution is not None and execution.token is None:
            execution = None  # a thread that a task left behind
        pause = _Pause(_began, now, info, threading.get_ident(), execution)
        for queue in _queues:
            queue.append(pause)


def _choose() -> None:
    """Choose the first recording of each run, and add or remove the callback."""
    global _queues, _began  # noqa: PLW0603  the callback reads them without a lock
    first: dict[str, deque[_Pause]] = {}
    for each in _recordings:
        first.setdefault(each._run_id, each._pauses)  # noqa: SLF001  of the same module
    _queues = tuple(first.values())
    installed = _on_collection in gc.callbacks
    if _queues and not installed:
        _began = 0
        gc.callbacks.append(_on_collection)
    elif installed and not _queues:
        gc.callbacks.remove(_on_collection)


def _forget_in_child() -> None:
    """Reset the state in a forked process, which is not recorded."""
    global _lock  # noqa: PLW0603  a thread of the parent may hold the old lock
    _lock = threading.Lock()
    _recordings.clear()
    _choose()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
