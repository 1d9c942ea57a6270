"""What only the inside of a task knows: its sections, counters, and the columns it touches.

It travels with the record, never with what a task returns. Without a recorder, and outside
Dask, nothing here does anything.
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
    """What the recorder keeps of one call of a task's function."""

    #: Sums and numbers of reports, by kind and name.
    reported: dict[tuple[str, str], tuple[float, int]]


#: The execution that the calling code is part of. The recorder sets it; it stays None elsewhere.
current_execution: ContextVar[Any] = ContextVar("dask_strata_execution", default=None)

#: Names that are kept of one run of a task; all further ones are summed up as one.
MAX_NAMES = 1_000
OTHERS = "(others)"

_lock = threading.Lock()


def _after_fork() -> None:
    """Give a forked process a lock of its own: the other may have been taken meanwhile."""
    global _lock  # noqa: PLW0603  a lock cannot be made new
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count(name: str, value: float = 1) -> None:
    """Add to a counter of the task that is running.

    Parameters
    ----------
    name : str
        Name of the counter.
    value : float, optional
        What to add.
    """
    _report("counter", name, value)


class section:  # noqa: N801  used as a statement: with section("jets")
    """Measure a part of a task: ``with section("jets"): …``.

    A section that is within another is part of the other's time, too. What an exception ends
    counts until then.

    Parameters
    ----------
    name : str
        Name of the section; times of the same name in one task are summed up.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: One object may be in use in several threads and tasks at once.
        self._began: dict[tuple[int, int], list[float]] = {}

    def __enter__(self) -> Self:
        self._began.setdefault(_whose(), []).append(time.perf_counter())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        whose = _whose()
        began = self._began.get(whose)
        # A generator may be entered in one task, or thread, and left in another: that is no
        # section of either.
        if began is None:
            return
        _report("section", self.name, time.perf_counter() - began.pop())
        if not began:
            self._began.pop(whose, None)


def track_metrics(function: Callable[P, R]) -> Callable[P, R]:
    """Measure a function as a section of its name, and the columns of events that it touches.

    For a coffea processor's ``process``, or any function that a task runs. Name, signature
    and result stay as they are.

    Parameters
    ----------
    function : callable
        The function or method.

    Returns
    -------
    callable
        The same, measured wherever a recorder is.

    Raises
    ------
    TypeError
        It is no function: put this on the method, not on the class.
    """
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"track_metrics is for functions and methods, not {function!r}")
    name = getattr(function, "__qualname__", type(function).__name__)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def tracked(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _Tracked(name, args):
                return await function(*args, **kwargs)

        return tracked  # type: ignore[return-value]  # a coroutine function, as it was

    @functools.wraps(function)
    def tracked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Tracked(name, args):
            return function(*args, **kwargs)

    return tracked_function


class _Tracked(section):
    """A section of a function, and the logs of columns of what it is given."""

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
    """Return coffea's log of the columns that were read of events, if they have one."""
    if type(events).__module__.partition(".")[0] not in ("coffea", "awkward"):
        return None
    attributes = getattr(events, "attrs", None)
    factory = attributes.get("@events_factory") if isinstance(attributes, Mapping) else None
    log = getattr(factory, "access_log", None)
    return log if isinstance(log, list) else None


def _whose() -> tuple[int, int]:
    return threading.get_ident(), id(current_execution.get())


def _report(kind: str, name: str, value: float) -> None:
    execution: Execution | None = current_execution.get()
    if execution is None:
        return
    # With a recorder, nothing may fail that does not without one.
    try:
        number, what = float(value), (kind, str(name))
    except Exception as error:  # noqa: BLE001  whatever the user gives us
        logger.warning("dask-strata does not record a %s that is no number: %s", kind, error)
        return
    with _lock:
        if what not in execution.reported and len(execution.reported) >= MAX_NAMES:
            what = (kind, OTHERS)
        total, times = execution.reported.get(what, (0.0, 0))
        execution.reported[what] = (total + number, times + 1)
