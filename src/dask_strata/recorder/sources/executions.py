"""Every run of a task's function, seen from the thread that runs it.

While anyone records this process, `distributed.worker._run_task` and its like are wrapped.
What they see is handed over as it is, and worked out on the recorder's thread. Nothing here
raises into Dask, and the last recording to end puts back what was there.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any

from dask_strata.metrics import current_execution as current
from dask_strata.recorder.pipeline import resource_usage
from dask_strata.recorder.pipeline.resource_usage import Sample
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import safe_repr
from dask_strata.recorder.sources import libraries
from dask_strata.recorder.sources.file_opens import opened_files, watch
from dask_strata.recorder.sources.library_reads import LibraryUse
from dask_strata.recorder.sources.transitions import text_or_none
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

logger = logging.getLogger("dask_strata")


@dataclass(slots=True)
class Execution:
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
    #: Who is told of it, and how to leave its context.
    sinks: list[deque[Execution]] = field(default_factory=list)
    token: Token[Execution | None] | None = None
    n_opened: int = 0
    opened: dict[tuple[Any, Any, Any, Any], int] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    #: Sums and counts by kind and name, see `dask_strata.metrics`.
    reported: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    library: LibraryUse | None = None


_sinks: dict[int, list[deque[Execution]]] = {}
#: What was there, and what stands in its place, by name.
_wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
_numbers = itertools.count()
_going_on: dict[int, Execution] = {}
_lock = threading.Lock()

#: What went wrong around a task, until somebody puts it on record.
_troubles: set[str] = set()
_MOST_TROUBLES = 100


class ExecutionHook(Source):
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
        self._runs: deque[Execution] = deque()
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
                resource_usage.close_files()

    def rows(self) -> Iterable[Batch]:
        """Return the runs that ended since the last call."""
        for reason in libraries.troubles():
            yield _loss("library_reads", reason)
        for _ in range(len(_troubles)):
            yield _loss("executions", _troubles.pop())
        runs = [self._runs.popleft() for _ in range(len(self._runs))]
        try:
            batches = list(self._batches(runs))
        except Exception:  # noqa: BLE001  one odd run must not cost the others
            batches = []
            for run in runs:
                try:
                    batches += self._batches([run])
                except Exception as error:  # noqa: BLE001  whatever is odd about it
                    yield _loss("executions", f"{type(error).__name__}: {safe_repr(error)}")
        yield from batches

    def _batches(self, runs: list[Execution]) -> Iterable[Batch]:
        if runs:
            yield self._executions(runs)
        for table, rows_of in (_DETAILS if self._opens else _REPORTED).items():
            rows = [self._about(run) | row for run in runs for row in rows_of(run)]
            if rows:
                yield Batch.of_rows(table, rows)

    def _executions(self, runs: list[Execution]) -> Batch:
        measured = [
            (run.start_ns, run.stop_ns, *_UNMEASURED)
            if run.before is None or run.after is None
            else resource_usage.used(run.before, run.after)
            for run in runs
        ]
        columns: dict[str, Any] = {
            "execution": [run.number for run in runs],
            "key": [wire_key(run.key) for run in runs],
            "worker": self._address,
            "run_id": [run.run_id for run in runs],
            "thread": [run.thread for run in runs],
            "kind": [run.kind for run in runs],
            "outcome": ["erred" if run.failed else "finished" for run in runs],
            "exception": [text_or_none(run.exception) for run in runs],
            "shared": [run.shared for run in runs],
        }
        columns |= zip(resource_usage.MEASURES, map(list, zip(*measured, strict=True)), strict=True)
        # Another recording of this process may see opens: here perhaps nobody asked for it.
        if self._opens:
            columns["elsewhere"] = [", ".join(sorted(run.elsewhere.copy())) or None for run in runs]
            columns["n_opened"] = [run.n_opened for run in runs]
        return Batch("executions", len(runs), columns)

    def _about(self, run: Execution) -> dict[str, Any]:
        return {
            "key": wire_key(run.key),
            "run_id": run.run_id,
            "worker": self._address,
            "execution": run.number,
        }


#: Of a coroutine no more is known than when it began and ended.
_UNMEASURED = (None,) * (len(resource_usage.MEASURES) - 2)


def _loss(what: str, reason: str) -> Batch:
    return Batch.of_rows("losses", [{"time": time.time_ns(), "what": what, "reason": reason}])


def _reports(run: Execution) -> Iterable[dict[str, Any]]:
    return [
        {"kind": kind, "name": text_or_none(name), "value": value, "count": count}
        for (kind, name), (value, count) in list(run.reported.items())
    ]


#: What is recorded of a run beside its own row, by table.
_DETAILS: dict[str, Callable[[Execution], Iterable[dict[str, Any]]]] = {
    "file_opens": lambda run: opened_files(run.opened),
    "library_reads": lambda run: () if run.library is None else run.library.reads(),
    "seen_chunks": lambda run: () if run.library is None else run.library.seen_chunks(),
    "reports": _reports,
}


#: The part of it that users report themselves.
_REPORTED = {"reports": _reports}


def _wrap() -> None:
    import distributed.worker as module

    if _wrapped:
        return
    for name, make in (
        ("_run_task", _wrapper(_begin_task)),
        ("_run_task_async", _coroutine_wrapper),
        ("_run_actor", _wrapper(_begin_actor)),
    ):
        original = getattr(module, name, None)
        if original is None:
            logger.warning("dask-strata does not see %s on this version of Dask", name)
            continue
        _wrapped[name] = original, functools.update_wrapper(make(original), original)
        setattr(module, name, _wrapped[name][1])


def _unwrap() -> None:
    import distributed.worker as module

    for name, (original, wrapper) in _wrapped.items():
        # Somebody may have wrapped our wrapper: it stays then, and passes calls on.
        if getattr(module, name) is wrapper:
            setattr(module, name, original)
    _wrapped.clear()


def _forget_in_child() -> None:
    """Leave nothing in a forked process that a thread may have held, or that it would record."""
    global _lock  # noqa: PLW0603  whoever held it is not in this process
    _lock = threading.Lock()
    _sinks.clear()
    _going_on.clear()
    current.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _begin(worker: Any, key: Any, kind: str) -> Execution | None:
    """Return what begins now; None if nobody records this worker."""
    if id(worker) not in _sinks or _is_going_on(key, kind):
        return None
    tasks = getattr(getattr(worker, "state", None), "tasks", {})
    run_id = getattr(tasks.get(key), "run_id", None)
    run = Execution(key, run_id, kind, threading.get_ident(), next(_numbers))
    run.sinks = _sinks[id(worker)]
    libraries.look()
    _going_on[run.number] = run
    try:
        # Of two that overlap, the later one here sees the other.
        if len(_going_on) > 1:
            for one in list(_going_on.values()):
                one.shared = True
        if kind == "coroutine":
            run.start_ns = time.time_ns()
        else:
            run.before = resource_usage.begin()
        run.token = current.set(run)
    except BaseException:
        _going_on.pop(run.number, None)
        raise
    return run


def _is_going_on(key: Any, kind: str) -> bool:
    """Tell whether a wrapper of an earlier recording, kept by somebody's own, has begun it."""
    outer = current.get()
    return (
        outer is not None
        and outer.token is not None
        and outer.thread == threading.get_ident()
        and (outer.kind, outer.key) == (kind, key)
    )


def _end(run: Execution) -> None:
    try:
        if run.kind == "coroutine":
            run.stop_ns = time.time_ns()
        else:
            run.after = resource_usage.end()
    finally:
        _going_on.pop(run.number, None)
        if run.token is not None:
            current.reset(run.token)
            run.token = None
    if run.library is not None:
        run.library.finish()
    for sink in run.sinks:
        sink.append(run)


def _guarded(action: Callable[..., Any], *args: Any) -> Any:
    """Do what must never fail a task; what went wrong is put on record, once a reason."""
    try:
        return action(*args)
    except Exception as error:  # noqa: BLE001  whatever it is, it is not the user's
        if len(_troubles) < _MOST_TROUBLES:
            _troubles.add(f"{type(error).__name__}: {safe_repr(error)}")
        return None


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs[name]


def _begin_task(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution | None:
    state = _argument(args, kwargs, 2, "execution_state")
    return _begin(state["worker"], _argument(args, kwargs, 3, "key"), "thread")


def _begin_coroutine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution | None:
    from distributed.worker import get_worker

    return _begin(get_worker(), _argument(args, kwargs, 0, "task").key, "coroutine")


def _begin_actor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution | None:
    worker = _argument(args, kwargs, 3, "execution_state")["worker"]
    function, name = _argument(args, kwargs, 0, "func"), _argument(args, kwargs, 4, "key")
    return _begin(worker, _actor_key(worker, function, name), "actor")


def _wrapper(begin: Callable[..., Execution | None]) -> Callable[..., Any]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            run = _guarded(begin, args, kwargs)
            if run is None:
                return original(*args, **kwargs)
            try:
                message = original(*args, **kwargs)
            except BaseException as error:
                run.failed, run.exception = True, safe_repr(error)
                raise
            else:
                _guarded(_note_outcome, run, message)
                return message
            finally:
                _guarded(_end, run)

        return wrapper

    return make


def _coroutine_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        run = _guarded(_begin_coroutine, args, kwargs)
        if run is None:
            return await original(*args, **kwargs)
        try:
            message = await original(*args, **kwargs)
        except BaseException as error:
            run.failed, run.exception = True, safe_repr(error)
            raise
        else:
            _guarded(_note_outcome, run, message)
            return message
        finally:
            _guarded(_end, run)

    return wrapper


def _actor_key(worker: Any, function: Any, name: Any) -> Any:
    """Return the key of the actor that a method belongs to; Dask passes on a name only."""
    actor = getattr(function, "__self__", None)
    for key, known in list(worker.state.actors.items()):
        if known is actor:
            return key
    return name


def _note_outcome(run: Execution, message: Any) -> None:
    # An actor's method returns what the user made, which is none of our business.
    if run.kind != "actor" and message.get("op") == "task-erred":
        run.failed, run.exception = True, message.get("exception_text")
