"""Metrics that code reports from inside a task: sections, counters, and columns of events.

They become rows of the record and never change the result of a task. Outside a recorded task,
all functions here only call the user's code.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("dask_strata")


class Execution(Protocol):
    """The part of an execution's record that holds reported metrics."""

    #: Sum of the values and number of reports, by kind and name.
    reported: dict[tuple[str, str], tuple[float, int]]


#: The execution that the calling code belongs to. Only the recorder sets it.
current_execution: ContextVar[Any] = ContextVar("dask_strata_execution", default=None)

#: Bound on the names in one execution; the values of all further names are summed as `OTHERS`.
MAX_NAMES = 1_000
OTHERS = "(others)"

_lock = threading.Lock()


def _after_fork() -> None:
    """Replace the lock in a forked process: another thread may have held it during the fork."""
    global _lock  # noqa: PLW0603  a lock cannot be reset in place
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count(name: str, value: float = 1) -> None:
    """Add to a counter of the task in which this is called.

    Parameters
    ----------
    name : str
        Name of the counter.
    value : float, optional
        Number to add; 1 by default. Anything that is not a number is left out, with a warning.

    Examples
    --------
    >>> count("events", 1_000)  # outside a recorded task this does nothing
    """
    _report("counter", name, value)


class section:  # noqa: N801  used as a statement: with section("jets")
    """Measure the wall time of a part of a task.

    The time of a nested section counts for both sections. If an exception ends the section, its
    time up to the exception counts.

    Parameters
    ----------
    name : str
        Name of the section; times of the same name in one execution are summed.

    Examples
    --------
    >>> with section("jets"):
    ...     energy = sum(range(10))
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: Start times by thread and execution: several may use this object at once.
        self._began: dict[tuple[int, int], list[float]] = {}

    def __enter__(self) -> Self:
        self._began.setdefault(_thread_and_execution(), []).append(time.perf_counter())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        key = _thread_and_execution()
        began = self._began.get(key)
        # Ignore a section that ends in another task or thread than it began in: the body of a
        # generator can be resumed there.
        if began is None:
            return
        _report("section", self.name, time.perf_counter() - began.pop())
        if not began:
            self._began.pop(key, None)


def track_metrics(function: Callable[P, R]) -> Callable[P, R]:
    """Measure each call of a function as a section, and record the columns of events it reads.

    Use it on the ``process`` method of a coffea processor, or on any function that tasks call.
    The name, signature and result of the function do not change. Columns are recorded if an
    argument is an array of events of coffea, which logs column accesses.

    Parameters
    ----------
    function : callable
        The function or method.

    Returns
    -------
    callable
        A function that calls the given one; it measures in recorded tasks only.

    Raises
    ------
    TypeError
        The argument is not a function; decorate the method, not the class.

    Examples
    --------
    >>> @track_metrics
    ... def select(events):
    ...     return [event for event in events if event > 0]
    >>> select([-1, 1])
    [1]
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"track_metrics is for functions and methods, not {function!r}")
    name = getattr(function, "__qualname__", type(function).__name__)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def tracked(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _Tracked(name, args):
                return await function(*args, **kwargs)

        return tracked  # type: ignore[return-value]  # R is then a coroutine

    @functools.wraps(function)
    def tracked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Tracked(name, args):
            return function(*args, **kwargs)

    return tracked_function


class _Tracked(section):
    """The section of one call, and the column logs of its arguments."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(name.rpartition("<locals>.")[2])
        found = (
            [] if current_execution.get() is None else [_log_of(argument) for argument in arguments]
        )
        self._logs = [(log, len(log)) for log in found if log is not None]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        for log, before in self._logs:
            for entry in log[before:]:
                _report("column", str(getattr(entry, "branch", entry)), 1)


def _log_of(events: Any) -> list[Any] | None:
    """Return coffea's log of the columns read from events, or None."""
    if type(events).__module__.partition(".")[0] not in ("coffea", "awkward"):
        return None
    attributes = getattr(events, "attrs", None)
    factory = attributes.get("@events_factory") if isinstance(attributes, Mapping) else None
    log = getattr(factory, "access_log", None)
    return log if isinstance(log, list) else None


def _thread_and_execution() -> tuple[int, int]:
    return threading.get_ident(), id(current_execution.get())


def _report(kind: str, name: str, value: float) -> None:
    execution: Execution | None = current_execution.get()
    if execution is None:
        return
    # A recorded task must not fail where an unrecorded one does not.
    try:
        number, key = float(value), (kind, str(name))
    except Exception as error:  # noqa: BLE001  the user's value may raise anything
        logger.warning("dask-strata ignores a %s whose value is not a number: %s", kind, error)
        return
    with _lock:
        if key not in execution.reported and len(execution.reported) >= MAX_NAMES:
            key = (kind, OTHERS)
        total, times = execution.reported.get(key, (0.0, 0))
        execution.reported[key] = (total + number, times + 1)
