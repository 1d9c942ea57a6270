"""Following the logging and the warnings of this process, without a handler.

A handler would change the user's output: `logging.basicConfig` does nothing if the root logger has
one, and Python itself prints records of level WARNING that find no handler. So one function stands
in for `logging.Logger.callHandlers`, which each record passes once that its logger and its filters
let through, whatever the handlers; and another for `warnings._showwarnmsg`. The recordings of this
process share them, and the last to end restores both.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from dask_strata.metrics import current_execution
from dask_strata.recorder.environment.program import program
from dask_strata.recorder.logs.budget import ENTRY_LIMIT, Budget
from dask_strata.recorder.logs.printed import is_plain, is_printed
from dask_strata.recorder.pipeline.text import clip

#: Loggers whose records are on record in a process that runs the user's program.
_OF_DASK = ("distributed.", "dask_strata.", "py.warnings.")

#: Records inside of each other that are noted: texts of objects that log may do so without end.
_MAX_DEPTH = 3

#: Longest name of a logger or thread, in characters.
_NAME_LIMIT = 500


class Entry(NamedTuple):
    """A record or warning as text: a row of ``log_records``, with the task's key as it is."""

    time: int
    level: str
    level_number: int
    logger: str
    message: str
    exception: str | None
    kind: str
    worker: str | None
    key: Any
    run_id: int | None
    thread: int
    thread_name: str

    @property
    def size(self) -> int:
        """Length of its texts."""
        return len(self.message) + len(self.exception or "")


class Listener(Protocol):
    """One recording of this process."""

    run_id: str
    role: str
    address: str | None
    level: int
    budget: Budget

    def take(self, entry: Entry) -> None:
        """Keep an entry."""

    def fail(self, reason: str) -> None:
        """Count an entry that could not be read."""


_lock = threading.RLock()
#: All recordings of this process; of each run, the first one takes the entries.
_listeners: list[Listener] = []
_first: tuple[Listener, ...] = ()
#: Whether only Dask's own loggers and tasks are on record: the process runs the user's program.
_only_dask = False
#: Address of the only worker in this process; None if there are several, or other servers.
_worker: str | None = None
_reading = threading.local()
_originals: dict[str, tuple[Any, Any]] = {}


def join(listener: Listener) -> None:
    """Give a recording the entries of this process, if it is the first of its run here."""
    with _lock:
        _listeners.append(listener)
        _update()
        _install()


def leave(listener: Listener) -> None:
    """End what `join` began; the last recording restores the functions of Python's library."""
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)
        _update()
        if not _listeners:
            _restore()


def _update() -> None:
    global _first, _only_dask, _worker  # noqa: PLW0603  what the process's one hook reads
    by_run: dict[str, Listener] = {}
    for listener in _listeners:
        by_run.setdefault(listener.run_id, listener)
    roles = {listener.role for listener in _listeners}
    addresses = {listener.address for listener in _listeners}
    _worker = next(iter(addresses)) if roles == {"worker"} and len(addresses) == 1 else None
    # The program of `dask worker` and `dask scheduler` has no name.
    servers_only = roles == {"worker"} or ("client" not in roles and program().name is None)
    _only_dask = not servers_only
    _first = tuple(by_run.values())


def _install() -> None:
    _replace(logging.Logger, "callHandlers", _calling_handlers)
    _replace(warnings, "_showwarnmsg", _showing_warning)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is None or name in _originals:
        return
    replacement = make(original)
    _originals[name] = original, replacement
    setattr(owner, name, replacement)


def _restore() -> None:
    for owner, name in ((logging.Logger, "callHandlers"), (warnings, "_showwarnmsg")):
        original, replacement = _originals.get(name, (None, None))
        # If other code has wrapped our function, leave it in place, for later recordings, too: it
        # passes calls on.
        if replacement is not None and getattr(owner, name, None) is replacement:
            setattr(owner, name, original)
            del _originals[name]


def _forget_in_child() -> None:
    """Forget the recordings in a forked process, which is not recorded."""
    global _lock, _first  # noqa: PLW0603  a thread of the parent may hold the old lock
    _lock = threading.RLock()
    _listeners.clear()
    _first = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _calling_handlers(original: Callable[..., None]) -> Callable[..., None]:
    def callHandlers(self: logging.Logger, record: logging.LogRecord) -> None:  # noqa: N802
        _note(self, record)
        original(self, record)

    _set_file(callHandlers, logging.__file__)
    return callHandlers


def _showing_warning(original: Callable[..., None]) -> Callable[..., None]:
    def _showwarnmsg(msg: Any) -> None:
        _note_warning(msg)
        original(msg)

    _set_file(_showwarnmsg, warnings.__file__)
    return _showwarnmsg


def _set_file(function: Any, file: str) -> None:
    """Make a function one of a module of Python's library.

    `logging` skips its own frames when it reports an error of a handler, by their file.
    """
    function.__code__ = function.__code__.replace(co_filename=file)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Let no error of the recorder reach the code that logs."""
    _reading.depth = getattr(_reading, "depth", 0) + 1
    try:
        yield
    except Exception as error:  # noqa: BLE001  a message is made by the user's own objects
        for listener in _first:
            listener.fail(f"{type(error).__name__} while an entry was read")
    finally:
        _reading.depth -= 1


def _note(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Note a record that is about to be handled."""
    if not _first or getattr(_reading, "depth", 0) >= _MAX_DEPTH:
        return
    with _guarded():
        execution = current_execution.get()
        if execution is None and _only_dask and not _is_of_dask(record):
            return
        takers = [each for each in _first if record.levelno >= each.level]
        if takers:
            entry = _entry_of(logger, record, execution)
            for taker in takers:
                taker.take(entry)


def _is_of_dask(record: logging.LogRecord) -> bool:
    return f"{record.name}.".startswith(_OF_DASK)


def _entry_of(logger: logging.Logger, record: logging.LogRecord, execution: Any) -> Entry:
    return Entry(
        int(record.created * 1e9),
        str(record.levelname)[:_NAME_LIMIT],
        int(record.levelno),
        str(record.name)[:_NAME_LIMIT],
        clip(_message(logger, record), ENTRY_LIMIT),
        _exception(record),
        "log",
        *_where(execution),
        threading.get_ident(),
        str(record.threadName or threading.current_thread().name)[:_NAME_LIMIT],
    )


def _message(logger: logging.Logger, record: logging.LogRecord) -> str:
    # The text of a user's object may take a lock that the code which logs it has.
    if not (is_plain(record.args) or _is_of_dask(record) or is_printed(logger, record)):
        return (
            f"{record.msg if type(record.msg) is str else type(record.msg)} (no handler prints it)"
        )
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  arguments that do not fit, or raise
        return f"{record.msg!r} ({type(error).__name__}: its arguments do not fit)"


_formatter = logging.Formatter()


def _exception(record: logging.LogRecord) -> str | None:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(_formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return clip("\n".join(parts), ENTRY_LIMIT) if parts else None


def _where(execution: Any) -> tuple[str | None, Any, int | None]:
    """Return the worker, the key and the run id of an entry of this thread."""
    if execution is None:
        return _worker, None, None
    return _worker or _worker_of_thread(), execution.key, execution.run_id


def _worker_of_thread() -> str | None:
    """Return the address of the worker whose task this thread runs: there are several here."""
    from distributed.worker import thread_state

    state = getattr(thread_state, "execution_state", None) or {}
    address = getattr(state.get("worker"), "address", None)
    return None if address is None else str(address)


def _note_warning(shown: Any) -> None:
    """Note a warning that Python is about to show."""
    if not _first or getattr(_reading, "depth", 0) >= _MAX_DEPTH or _is_taken_elsewhere():
        return
    with _guarded():
        level = logging.WARNING
        takers = [each for each in _first if level >= each.level]
        if not takers:
            return
        first = f"{shown.filename}:{shown.lineno}: {shown.category.__name__}: {shown.message}"
        entry = Entry(
            time.time_ns(),
            "WARNING",
            level,
            "py.warnings",
            clip(first, ENTRY_LIMIT),
            None,
            "warning",
            *_where(current_execution.get()),
            threading.get_ident(),
            threading.current_thread().name[:_NAME_LIMIT],
        )
        for taker in takers:
            taker.take(entry)


def _is_taken_elsewhere() -> bool:
    """Return whether warnings are not shown now.

    `logging.captureWarnings` makes records of them; `warnings.catch_warnings` keeps them in a list.
    """
    if warnings.showwarning is not getattr(warnings, "_showwarning_orig", None):
        return warnings.showwarning is getattr(logging, "_showwarning", None)
    context = getattr(warnings, "_get_context", None)
    if context is not None and getattr(context(), "log", None) is not None:
        return True
    impl = getattr(warnings, "_showwarnmsg_impl", None)
    return isinstance(getattr(impl, "__self__", None), list)
