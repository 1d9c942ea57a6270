"""Every run of a task's function, seen from the thread that runs it.

While anyone records this process, `distributed.worker._run_task` and its like are wrapped.
What they see is handed over as it is, and worked out on the recorder's thread. Nothing here
raises into Dask, and the last recording to end puts back what was there.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dask_strata.recorder import accounting, libraries
from dask_strata.recorder.accounting import Sample
from dask_strata.recorder.library_use import LibraryUse
from dask_strata.recorder.opens import opened_files, watch
from dask_strata.recorder.text import safe_repr
from dask_strata.recorder.transitions import text_or_none
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

logger = logging.getLogger("dask_strata")


@dataclass(slots=True)
class Running:
    """One run of a task's function, while it goes on and until it is written."""

    key: Any
    run_id: int | None
    kind: str
    thread: int
    number: int
    before: Sample | None = None
    after: Sample | None = None
    start_ns: int = 0
    stop_ns: int = 0
    exception: str | None = None
    failed: bool = False
    shared: bool = False
    n_opened: int = 0
    opened: dict[tuple[Any, Any, Any], int] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    #: Sums and counts by kind and name, see `dask_strata.metrics`.
    reported: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    library: LibraryUse | None = None


#: The run that the calling code is part of; also where a library hands its context on.
current: ContextVar[Running | None] = ContextVar("dask_strata_running", default=None)

_sinks: dict[int, list[deque[Running]]] = {}
_originals: dict[str, Callable[..., Any]] = {}
_numbers = itertools.count()
_going_on: set[int] = set()
_lock = threading.Lock()


class RunTap:
    """Sees every run of a task's function on one worker.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    address : str
        Its address, for the rows.
    opens : bool
        Whether files that are opened are seen, too.
    """

    def __init__(self, worker: Any, address: str, *, opens: bool) -> None:
        self._address = address
        self._worker = id(worker)
        self._runs: deque[Running] = deque()
        self._opens = self._attached = opens
        if opens:
            libraries.attach(current)
            watch(current, libraries.look)
        with _lock:
            _wrap()
            _sinks.setdefault(self._worker, []).append(self._runs)

    def remove(self) -> None:
        """Stop; the last one to stop leaves Dask as it was."""
        if self._attached:
            self._attached = False
            libraries.detach()
        with _lock:
            sinks = _sinks.get(self._worker, [])
            # By identity: two empty queues are equal.
            sinks[:] = [sink for sink in sinks if sink is not self._runs]
            if not sinks:
                _sinks.pop(self._worker, None)
            if not _sinks:
                _unwrap()
                accounting.close_files()

    def __call__(self) -> Iterable[Batch]:
        """Return the runs that ended since the last call."""
        for reason in libraries.troubles():
            row = {"time": time.time_ns(), "what": "library_reads", "reason": reason}
            yield Batch.of_rows("losses", [row])
        runs = [self._runs.popleft() for _ in range(len(self._runs))]
        if not runs:
            return
        rows = [_row(run, self._address) for run in runs]
        if not self._opens:
            # Another recording of this process may have seen them: here nobody asked for it.
            for row in rows:
                row["n_opened"] = row["elsewhere"] = None
        yield Batch.of_rows("executions", rows)
        for table, rows_of in (_DETAILS if self._opens else _REPORTED).items():
            rows = [
                {
                    "key": wire_key(run.key),
                    "run_id": run.run_id,
                    "worker": self._address,
                    "execution": run.number,
                    **detail,
                }
                for run in runs
                for detail in rows_of(run)
            ]
            if rows:
                yield Batch.of_rows(table, rows)


def _reports(run: Running) -> Iterable[dict[str, Any]]:
    return [
        {"kind": kind, "name": text_or_none(name), "value": value, "count": count}
        for (kind, name), (value, count) in list(run.reported.items())
    ]


#: What is recorded of a run beside its own row, by table.
_DETAILS: dict[str, Callable[[Running], Iterable[dict[str, Any]]]] = {
    "file_opens": lambda run: opened_files(run.opened),
    "library_reads": lambda run: () if run.library is None else run.library.reads(),
    "seen_chunks": lambda run: () if run.library is None else run.library.seen_chunks(),
    "reports": _reports,
}


#: The part of it that users report themselves.
_REPORTED = {"reports": _reports}


def _row(run: Running, worker: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": wire_key(run.key),
        "run_id": run.run_id,
        "worker": worker,
        "thread": run.thread,
        "execution": run.number,
        "kind": run.kind,
        "start": run.start_ns,
        "stop": run.stop_ns,
        "outcome": "erred" if run.failed else "finished",
        "exception": text_or_none(run.exception),
        "shared": run.shared,
        "elsewhere": ", ".join(sorted(run.elsewhere.copy())) or None,
        "n_opened": run.n_opened,
    }
    if run.before is not None and run.after is not None:
        row |= accounting.used(run.before, run.after)
    return row


def _wrap() -> None:
    import distributed.worker as module

    if _originals:
        return
    for name, make in (
        ("_run_task", _task_wrapper),
        ("_run_task_async", _coroutine_wrapper),
        ("_run_actor", _actor_wrapper),
    ):
        original = getattr(module, name, None)
        if original is None:
            logger.warning("dask-strata does not see %s on this version of Dask", name)
            continue
        _originals[name] = original
        setattr(module, name, make(original))


def _unwrap() -> None:
    import distributed.worker as module

    for name, original in _originals.items():
        # Somebody may have wrapped our wrapper: it stays then, and passes calls on.
        if getattr(getattr(module, name), "dask_strata", None) is original:
            setattr(module, name, original)
    _originals.clear()


def _start(worker: Any, key: Any, kind: str) -> Running:
    tasks = getattr(getattr(worker, "state", None), "tasks", {})
    run_id = getattr(tasks.get(key), "run_id", None)
    thread = threading.get_ident()
    run = Running(key, run_id, kind, thread, next(_numbers))
    run.shared = bool(_going_on)
    _going_on.add(run.number)
    libraries.look()
    return run


def _end(run: Running, sinks: list[deque[Running]]) -> None:
    _going_on.discard(run.number)
    if run.library is not None:
        run.library.finish()
    # Whoever began meanwhile has a later number.
    run.shared = run.shared or bool(_going_on) or next(_numbers) != run.number + 1
    for sink in sinks:
        sink.append(run)


def _task_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def _run_task(task: Any, data: Any, execution_state: Any, key: Any, *rest: Any) -> Any:
        worker = execution_state["worker"]
        sinks = _sinks.get(id(worker))
        if not sinks:
            return original(task, data, execution_state, key, *rest)
        run = _start(worker, key, "thread")
        run.before = accounting.begin()
        token = current.set(run)
        try:
            message = original(task, data, execution_state, key, *rest)
        except BaseException as error:
            run.failed, run.exception = True, safe_repr(error)
            raise
        else:
            _note_outcome(run, message)
            return message
        finally:
            run.after = accounting.end()
            current.reset(token)
            _end(run, sinks)

    _run_task.dask_strata = original  # type: ignore[attr-defined]
    return _run_task


def _coroutine_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    async def _run_task_async(task: Any, *rest: Any) -> Any:
        from distributed.worker import get_worker

        worker = get_worker()
        sinks = _sinks.get(id(worker))
        if not sinks:
            return await original(task, *rest)
        run = _start(worker, task.key, "coroutine")
        token = current.set(run)
        run.start_ns = time.time_ns()
        try:
            message = await original(task, *rest)
        except BaseException as error:
            run.failed, run.exception = True, safe_repr(error)
            raise
        else:
            _note_outcome(run, message)
            return message
        finally:
            run.stop_ns = time.time_ns()
            current.reset(token)
            _end(run, sinks)

    _run_task_async.dask_strata = original  # type: ignore[attr-defined]
    return _run_task_async


def _actor_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def _run_actor(
        function: Any, args: Any, kwargs: Any, execution_state: Any, key: Any, *rest: Any
    ) -> Any:
        worker = execution_state["worker"]
        sinks = _sinks.get(id(worker))
        if not sinks:
            return original(function, args, kwargs, execution_state, key, *rest)
        run = _start(worker, _actor_key(worker, function, key), "actor")
        run.before = accounting.begin()
        token = current.set(run)
        try:
            return original(function, args, kwargs, execution_state, key, *rest)
        except BaseException as error:
            run.failed, run.exception = True, safe_repr(error)
            raise
        finally:
            run.after = accounting.end()
            current.reset(token)
            _end(run, sinks)

    _run_actor.dask_strata = original  # type: ignore[attr-defined]
    return _run_actor


def _actor_key(worker: Any, function: Any, name: Any) -> Any:
    """Return the key of the actor that a method belongs to; Dask passes on a name only."""
    actor = getattr(function, "__self__", None)
    for key, known in list(worker.state.actors.items()):
        if known is actor:
            return key
    return name


def _note_outcome(run: Running, message: Any) -> None:
    if message.get("op") == "task-erred":
        run.failed, run.exception = True, message.get("exception_text")
