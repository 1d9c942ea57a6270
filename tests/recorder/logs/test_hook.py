"""Entries of one process, as the hook gives them to a recording."""

from __future__ import annotations

import functools
import logging
import logging.handlers
import os
import threading
import warnings
from collections.abc import Iterator

import pytest

from dask_strata.recorder.logs import hook
from dask_strata.recorder.logs.budget import Budget
from dask_strata.recorder.logs.hook import Entry


class Listening:
    """A recording that keeps the entries."""

    run_id, role, level = "0a1b", "worker", logging.INFO

    def __init__(self, address: str = "tcp://10.0.0.1:1") -> None:
        self.address: str | None = address
        self.budget = Budget()
        self.entries: list[Entry] = []
        self.failures: list[str] = []

    def take(self, entry: Entry) -> None:
        """Keep an entry."""
        self.entries.append(entry)

    def fail(self, reason: str) -> None:
        """Keep the reason."""
        self.failures.append(reason)

    @property
    def messages(self) -> list[str]:
        """The messages so far."""
        return [entry.message for entry in self.entries]


@pytest.fixture
def listening() -> Iterator[Listening]:
    """A recording of this process, which ends with the test."""
    made = Listening()
    hook.join(made)
    yield made
    hook.leave(made)


class _Locked:
    """An object whose text takes a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        assert self.lock.acquire(blocking=False), "would wait for ever"
        self.lock.release()
        return "its text"


@pytest.mark.parametrize("handler", [None, logging.NullHandler(), logging.StreamHandler()])
def test_a_text_that_nobody_makes(listening: Listening, handler: logging.Handler | None) -> None:
    """Where no handler prints a record, no code of the user's objects in it runs."""
    logger = logging.getLogger("user.locked")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if handler is not None:
        if not isinstance(handler, logging.NullHandler):
            handler.setLevel(logging.ERROR)
        logger.addHandler(handler)
    locked = _Locked()
    try:
        with locked.lock:
            logger.info("state %s", locked)
        logger.info("state %s", {"plain": [1, 2.5]})
        logger.error("state %s", locked)
    finally:
        logger.handlers.clear()
        logger.propagate = True
    last = "state %s (no handler prints it)" if _is_null(handler) else "state its text"
    plain = "state {'plain': [1, 2.5]}"
    assert listening.messages == ["state %s (no handler prints it)", plain, last]
    assert listening.failures == []


def _is_null(handler: logging.Handler | None) -> bool:
    return isinstance(handler, logging.NullHandler)


def test_other_code_that_wraps_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later recording has each entry once, although other code still calls our function."""
    original = logging.Logger.callHandlers
    first, second = Listening(), Listening()
    hook.join(first)
    ours = logging.Logger.callHandlers
    monkeypatch.setattr(logging.Logger, "callHandlers", functools.partialmethod(ours))
    hook.leave(first)
    hook.join(second)
    logging.getLogger("a").warning("once")
    monkeypatch.undo()
    hook.leave(second)
    assert second.messages == ["once"]
    assert logging.Logger.callHandlers is original


def test_functions_are_restored_by_the_last_recording() -> None:
    """Python's functions are the very same ones after two recordings that overlap."""
    before = logging.Logger.callHandlers, warnings._showwarnmsg
    first, second = Listening(), Listening()
    hook.join(first)
    hook.join(second)
    logging.getLogger("a").warning("both are of one run")
    hook.leave(first)
    logging.getLogger("a").warning("the second takes over")
    hook.leave(second)
    logging.getLogger("a").warning("after the end")
    assert (logging.Logger.callHandlers, warnings._showwarnmsg) == before
    assert first.messages == ["both are of one run"]
    assert second.messages == ["the second takes over"]


def test_a_warning_is_noted_once_if_it_is_shown(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noted as Python or logging shows it, and not if other code collects it."""
    shown: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(message))
        warnings.warn("shown", stacklevel=1)
        logging.captureWarnings(capture=True)
        warnings.warn("captured", stacklevel=1)
        logging.captureWarnings(capture=False)
    with warnings.catch_warnings(record=True) as collected:
        warnings.simplefilter("always")
        warnings.warn("collected", stacklevel=1)
    assert [str(each.message) for each in collected] == ["collected"]
    assert [(e.kind, e.logger) for e in listening.entries] == [
        ("warning", "py.warnings"),
        ("log", "py.warnings"),
    ]
    assert listening.messages[0].endswith("UserWarning: shown")
    assert "UserWarning: captured" in listening.messages[1]
    assert [str(each) for each in shown] == ["shown"]


def test_any_message_is_noted(listening: Listening) -> None:
    """Wrong arguments, texts that raise or log, and mutable arguments cost nothing else."""

    class Raises:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Logs:
        def __str__(self) -> str:
            logging.getLogger("inner").warning("inner")
            return "text"

    log = logging.getLogger("outer")
    log.addHandler(logging.handlers.MemoryHandler(100))  # it makes no text itself
    log.propagate = False
    try:
        changing = [1]
        log.warning("list %s", changing)
        changing.append(2)
        log.warning("%d", "text")
        log.warning("%s", Raises())
        log.warning("%s", Logs())
        log.warning("x" * 20_000)
        log.debug("below the level")
    finally:
        log.propagate = True
        log.handlers.clear()
    assert listening.messages[0] == "list [1]"
    assert "its arguments do not fit" in listening.messages[1]
    assert "RuntimeError" in listening.messages[2]
    assert listening.messages[3:5] == ["inner", "text"]
    assert listening.messages[5].endswith("(10000 more characters)")
    assert len(listening.messages) == 6
    assert not listening.failures


def test_a_fork_is_not_recorded(listening: Listening) -> None:
    """A forked process notes nothing, and logs as before."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover  in the fork
        logging.getLogger("fork").warning("in the fork")
        os.write(write, b"%d" % len(listening.entries))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"0"
    os.close(read)
    os.close(write)
    logging.getLogger("fork").warning("in the parent")
    assert listening.messages == ["in the parent"]
