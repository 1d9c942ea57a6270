"""Executions: each call of a task's function, measured on the thread that calls it.

While at least one recording of this process is under way, wrappers replace the functions of
`distributed.worker` that call a task's function. A wrapper only takes measurements; the
recorder's thread turns them into rows. The wrappers never raise into Dask, and the last recording
to end restores Dask's own functions.
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
from operator import attrgetter
from time import process_time, thread_time
from typing import Any

from dask_strata.metrics import current_execution
from dask_strata.recorder.pipeline import resource_usage
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.resource_usage import Sample
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import safe_repr, wire_keys
from dask_strata.recorder.sampling.sums import Sampled
from dask_strata.recorder.sources import libraries
from dask_strata.recorder.sources.file_opens import opened_files, watch
from dask_strata.recorder.sources.library_reads import LibraryUse
from dask_strata.recorder.sources.transitions import text_or_none
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch

logger = logging.getLogger("dask_strata")


@dataclass(slots=True)
class Execution:
    """One call of a task's function, from its start until its rows are made.

    Attributes
    ----------
    key : object
        Key of the task, as Dask has it.
    run_id : int or None
        Dask's own number of the attempt; None if the worker's state has no such task.
    kind : str
        thread, coroutine or actor.
    thread : int
        Identity of the calling thread.
    number : int
        Number of the execution in this process.
    before, after : Sample or None
        Resource usage at the start and the end; None for a coroutine.
    first_clocks, last_clocks : tuple of float or None
        CPU seconds of the thread and of its process, at the first and the last reading; None for a
        coroutine.
    start_ns, stop_ns : int
        Wall clock in nanoseconds since the epoch; used only for a coroutine.
    exception : str or None
        Representation of the exception that the function raised.
    failed : bool
        Whether the function raised.
    rescheduled : bool
        Whether it raised Dask's `Reschedule`, which requests another attempt and is no error.
    shared : bool or None
        Whether another execution overlapped with this one in this process; None if that is unknown.
    queues : list of deque
        Queues of the recordings, which get this execution when it ends.
    token : Token or None
        Resets the context variable when the execution ends; None before and afterwards.
    n_opened : int
        Number of files opened.
    opened : dict
        How often each (path, mode, flags, working folder) was opened.
    elsewhere : set of str
        Whether the function started "threads" or "processes", whose usage is not measured.
    reported : dict
        Sums and counts by kind and name, see `dask_strata.metrics`.
    library : LibraryUse or None
        Reads and chunks of libraries; None until a library is used.
    """

    key: Any
    run_id: int | None
    kind: str
    thread: int
    number: int
    before: Sample | None = None
    after: Sample | None = None
    first_clocks: tuple[float, float] | None = None
    last_clocks: tuple[float, float] | None = None
    start_ns: int = 0
    stop_ns: int = 0
    exception: str | None = None
    failed: bool = False
    rescheduled: bool = False
    shared: bool | None = False
    queues: list[deque[Execution]] = field(default_factory=list)
    token: Token[Execution | None] | None = None
    n_opened: int = 0
    opened: dict[tuple[Any, Any, Any, Any], int] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    reported: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    library: LibraryUse | None = None


#: Queues of the recordings of each worker, by the identity of the worker.
_queues: dict[int, list[deque[Execution]]] = {}
#: Dask's function and the wrapper that replaces it, by name.
_wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
_numbers = itertools.count()
_under_way: dict[int, Execution] = {}
#: Identities of the workers that have executors whose tasks are not recorded.
_with_other_executors: set[int] = set()
_lock = threading.Lock()

#: Errors of the measurements around tasks, which the next `ExecutionHook.rows` records as losses.
_errors: set[str] = set()
_MAX_ERRORS = 100

#: Most ended executions that are kept until the next look of the sampler.
_MAX_ENDED = 1000


class ExecutionHook(Source):
    """Record every execution on one worker, from creation until `remove`.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    address : str
        Address of the worker, for the rows.
    opens : bool
        Whether to record opened files and the reads of libraries, too.
    samples : bool, optional
        Whether `sampled` is called.
    """

    def __init__(self, worker: Any, address: str, *, opens: bool, samples: bool = False) -> None:
        self._address = address
        self._worker = id(worker)
        self._executions: deque[Execution] = deque()
        self._ended: deque[Execution] = deque(maxlen=_MAX_ENDED)
        self._opens = self._attached = opens
        if opens:
            libraries.attach(current_execution)
            watch(current_execution, libraries.place_probes)
        with _lock:
            _wrap()
            queues = _queues.setdefault(self._worker, [])
            queues += [self._executions, self._ended] if samples else [self._executions]
            if _has_other_executors(worker):
                _with_other_executors.add(self._worker)

    def remove(self) -> None:
        """Stop recording; the last hook of the process restores Dask's functions."""
        if self._attached:
            self._attached = False
            libraries.detach()
        with _lock:
            queues = _queues.get(self._worker, [])
            # Compare by identity: two empty queues are equal.
            own = {id(self._executions), id(self._ended)}
            queues[:] = [queue for queue in queues if id(queue) not in own]
            if not queues:
                _queues.pop(self._worker, None)
                _with_other_executors.discard(self._worker)
            if not _queues:
                _unwrap()
                resource_usage.close_files()

    def sampled(self) -> list[Sampled]:
        """Return the executions under way on threads of the worker, and those that ended.

        Of the latter, those since the last call. Coroutines, which share a thread, and executions
        that have yet to start are left out.
        """
        own = _queues.get(self._worker)
        # In this order: an execution that ends meanwhile is not missing.
        found = [each for each in list(_under_way.values()) if each.queues is own]
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        chosen = {each.number: each for each in (*found, *ended) if each.kind != "coroutine"}
        return [_sampled(each) for each in chosen.values() if each.before is not None]

    def rows(self) -> Iterable[Batch]:
        """Return rows of the executions that ended since the last call, and of losses."""
        for reason in libraries.take_errors():
            yield _loss("library_reads", reason)
        for _ in range(len(_errors)):
            yield _loss("executions", _errors.pop())
        ended = [self._executions.popleft() for _ in range(len(self._executions))]
        try:
            batches = list(self._batches(ended))
        except Exception:  # noqa: BLE001  one malformed execution must not cost the others
            batches = []
            for execution in ended:
                try:
                    batches += self._batches([execution])
                except Exception as error:  # noqa: BLE001  it may be malformed in any way
                    yield _loss("executions", f"{type(error).__name__}: {safe_repr(error)}")
        yield from batches

    def _batches(self, ended: list[Execution]) -> Iterable[Batch]:
        if ended:
            yield self._batch_of_executions(ended)
        for table, (attribute, rows_of) in (_DETAILS if self._opens else _REPORTED).items():
            having = filter(attrgetter(attribute), ended)
            rows = [self._about(each) | row for each in having for row in rows_of(each)]
            if rows:
                yield Batch.of_rows(table, rows)

    def _batch_of_executions(self, ended: list[Execution]) -> Batch:
        measured = [
            (each.start_ns, each.stop_ns, *_UNMEASURED)
            if each.before is None or each.after is None
            else resource_usage.used(each.before, each.after)
            for each in ended
        ]
        samples = [sample for each in ended for sample in (each.before, each.after)]
        self.read_bytes += resource_usage.reading_bytes(filter(None, samples))
        columns: dict[str, Any] = {
            "execution": [each.number for each in ended],
            "key": wire_keys([each.key for each in ended]),
            "worker": self._address,
            "run_id": [each.run_id for each in ended],
            "thread": [each.thread for each in ended],
            "kind": [each.kind for each in ended],
            "outcome": [_outcome(each) if each.failed else "finished" for each in ended],
            "exception": [
                None if each.exception is None else text_or_none(each.exception) for each in ended
            ],
            "shared": [each.shared for each in ended],
        }
        cpu = map(list, zip(*map(_cpu_seconds, ended), strict=True))
        columns |= zip(("cpu_seconds", "process_cpu_seconds"), cpu, strict=True)
        columns |= zip(resource_usage.MEASURES, map(list, zip(*measured, strict=True)), strict=True)
        # The audit hook also counts for recordings without `opens`, if another one has it on.
        if self._opens:
            columns["elsewhere"] = [
                ", ".join(sorted(each.elsewhere.copy())) if each.elsewhere else None
                for each in ended
            ]
            columns["n_opened"] = [each.n_opened for each in ended]
        return Batch("executions", len(ended), columns)

    def _about(self, execution: Execution) -> dict[str, Any]:
        return {
            "key": wire_key(execution.key),
            "run_id": execution.run_id,
            "worker": self._address,
            "execution": execution.number,
        }


def _sampled(execution: Execution) -> Sampled:
    before, after = execution.before, execution.after
    return Sampled(
        execution.number,
        execution.key,
        execution.run_id,
        execution.thread,
        None if before is None else before.time_ns,
        None if after is None else after.time_ns,
    )


#: A coroutine shares its thread, so only its start and stop are measured.
_UNMEASURED = (None,) * (len(resource_usage.MEASURES) - 2)


def _outcome(failed: Execution) -> str:
    return "rescheduled" if failed.rescheduled else "erred"


def _cpu_seconds(execution: Execution) -> tuple[float | None, float | None]:
    """Return the CPU seconds of the thread and of its process."""
    first, last = execution.first_clocks, execution.last_clocks
    if first is None or last is None:
        return None, None
    # In whole nanoseconds: `round` with digits converts to a text and back.
    return round((last[0] - first[0]) * 1e9) / 1e9, round((last[1] - first[1]) * 1e9) / 1e9


def _loss(table: str, reason: str) -> Batch:
    return Batch.of_rows(
        "losses", [{"time": time.time_ns(), "what": table, "reason": redact_text(reason)}]
    )


def _reports(execution: Execution) -> Iterable[dict[str, Any]]:
    return [
        {"kind": kind, "name": text_or_none(name), "value": value, "count": count}
        for (kind, name), (value, count) in list(execution.reported.items())
    ]


#: Functions that make the rows of an execution in each further table, by the attribute that is
#: empty in an execution without such rows.
_DETAILS: dict[str, tuple[str, Callable[[Execution], Iterable[dict[str, Any]]]]] = {
    "file_opens": ("opened", lambda each: opened_files(each.opened)),
    "library_reads": ("library", lambda each: each.library.reads() if each.library else ()),
    "seen_chunks": ("library", lambda each: each.library.seen_chunks() if each.library else ()),
    "reports": ("reported", _reports),
}


#: The tables that are recorded without `opens`: reports of the user's own code.
_REPORTED = {"reports": _DETAILS["reports"]}


def _wrap() -> None:
    import distributed.worker as module

    if _wrapped:
        return
    for name, make in (
        ("_run_task", _wrapper(_begin_task)),
        ("_run_task_async", _coroutine_wrapper),
        ("_run_actor", _wrapper(_begin_actor)),
        ("thread_time", _clock_wrapper),
    ):
        original = getattr(module, name, None)
        if original is None:
            logger.warning(
                "dask-strata does not record executions through distributed.worker.%s: "
                "this version of Dask has no such function",
                name,
            )
            continue
        _wrapped[name] = original, functools.update_wrapper(make(original), original)
        setattr(module, name, _wrapped[name][1])


def _unwrap() -> None:
    import distributed.worker as module

    for name, (original, wrapper) in _wrapped.items():
        # If other code has wrapped our wrapper, leave it in place: it passes calls on.
        if getattr(module, name) is wrapper:
            setattr(module, name, original)
    _wrapped.clear()


def _forget_in_child() -> None:
    """Reset the state in a forked process, which is not recorded."""
    global _lock  # noqa: PLW0603  a thread of the parent may hold the old lock
    _lock = threading.Lock()
    _queues.clear()
    _under_way.clear()
    _with_other_executors.clear()
    current_execution.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _begin(worker: Any, key: Any, kind: str) -> Execution | None:
    """Begin an execution; return None if the worker is not recorded or it has already begun."""
    if id(worker) not in _queues or _is_under_way(key, kind):
        return None
    tasks = getattr(getattr(worker, "state", None), "tasks", {})
    run_id = getattr(tasks.get(key), "run_id", None)
    execution = Execution(key, run_id, kind, threading.get_ident(), next(_numbers))
    execution.queues = _queues[id(worker)]
    libraries.place_probes()
    if _with_other_executors:
        execution.shared = None
    _under_way[execution.number] = execution
    try:
        # The later of two overlapping executions finds the earlier one here and marks both. Dask's
        # own list has those that started before the recording.
        if len(_under_way) > 1 or getattr(worker, "active_threads", None):
            for each in list(_under_way.values()):
                each.shared = True
        if kind == "coroutine":
            execution.start_ns = time.time_ns()
        else:
            execution.before = resource_usage.begin(alone=execution.shared is False)
            if kind == "actor":
                _read_clocks(execution, thread_time)
        execution.token = current_execution.set(execution)
    except BaseException:
        _under_way.pop(execution.number, None)
        raise
    return execution


def _is_under_way(key: Any, kind: str) -> bool:
    """Return whether an outer wrapper has begun this execution.

    A wrapper of an earlier recording stays if other code has wrapped it.
    """
    outer = current_execution.get()
    return (
        outer is not None
        and outer.token is not None
        and outer.thread == threading.get_ident()
        and (outer.kind, outer.key) == (kind, key)
    )


def _end(execution: Execution) -> None:
    try:
        if execution.kind == "coroutine":
            execution.stop_ns = time.time_ns()
        else:
            if execution.kind == "actor":
                _read_clocks(execution, thread_time)
            execution.after = resource_usage.end(alone=execution.shared is False)
    finally:
        _under_way.pop(execution.number, None)
        if execution.token is not None:
            current_execution.reset(execution.token)
            execution.token = None
    if execution.library is not None:
        execution.library.finish()
    for queue in execution.queues:
        queue.append(execution)


def _clock_wrapper(original: Callable[[], float]) -> Callable[[], float]:
    """Wrap the clock that Dask reads at the start and the end of a task's compute time.

    With readings at these moments the CPU time is a part of the compute time. At all others it
    could exceed the compute time of a short task.
    """

    def wrapper() -> float:
        execution = current_execution.get()
        if execution is None or execution.kind != "thread":
            return original()
        return _read_clocks(execution, original)

    return wrapper


def _read_clocks(execution: Execution, clock: Callable[[], float]) -> float:
    """Read the CPU clocks of the calling thread and of its process; return the thread's."""
    # The thread's time is within the process's, so that the difference is never negative.
    if execution.first_clocks is None:
        process = process_time()
        seconds = clock()
        execution.first_clocks = seconds, process
    else:
        seconds = clock()
        execution.last_clocks = seconds, process_time()
    return seconds


def _has_other_executors(worker: Any) -> bool:
    """Return whether a worker runs tasks in this process in executors that are not recorded.

    Dask calls the recorded functions in pools of threads only; pools of processes have clocks of
    their own.
    """
    executors = getattr(worker, "executors", {})
    return any("PoolExecutor" not in str(type(each)) for each in list(executors.values()))


def _guarded(action: Callable[..., Any], *args: Any) -> Any:
    """Call an action that must never fail a task; record each distinct error once per flush."""
    try:
        return action(*args)
    except Exception as error:  # noqa: BLE001  an error of the recorder must not reach the task
        if len(_errors) < _MAX_ERRORS:
            _errors.add(f"{type(error).__name__}: {safe_repr(error)}")
        return None


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs[name]


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
            execution = _guarded(begin, args, kwargs)
            if execution is None:
                return original(*args, **kwargs)
            try:
                message = original(*args, **kwargs)
            except BaseException as error:
                execution.failed, execution.exception = True, safe_repr(error)
                raise
            else:
                _guarded(_note_outcome, execution, message)
                return message
            finally:
                _guarded(_end, execution)

        return wrapper

    return make


def _coroutine_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        execution = _guarded(_begin_coroutine, args, kwargs)
        if execution is None:
            return await original(*args, **kwargs)
        try:
            message = await original(*args, **kwargs)
        except BaseException as error:
            execution.failed, execution.exception = True, safe_repr(error)
            raise
        else:
            _guarded(_note_outcome, execution, message)
            return message
        finally:
            _guarded(_end, execution)

    return wrapper


def _actor_key(worker: Any, function: Any, name: Any) -> Any:
    """Return the key of a method's actor; Dask passes a name, which is not the key."""
    actor = getattr(function, "__self__", None)
    for key, candidate in list(worker.state.actors.items()):
        if candidate is actor:
            return key
    return name


def _note_outcome(execution: Execution, message: Any) -> None:
    # The message of an actor's method is the user's own return value, so do not read it.
    if execution.kind != "actor" and message.get("op") == "task-erred":
        from distributed import Reschedule

        execution.failed, execution.exception = True, message.get("exception_text")
        execution.rescheduled = isinstance(message.get("actual_exception"), Reschedule)
