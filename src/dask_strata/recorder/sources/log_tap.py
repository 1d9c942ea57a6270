"""Following Dask's own logs at no cost to the event loop.

Dask appends each transition and transfer to a bounded deque. We put an unbounded deque in
its place, which the event loop appends to exactly as before, in C; our own thread reads
what is new and trims it back to the length that Dask wanted. Nothing of ours runs on the
event loop for it, and each entry that Dask logs is seen exactly once.

This leans on attributes of Dask that are not documented. `LogTap` refuses what does not
look as expected, and the recorder then uses Dask's public plugin calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any


class UnexpectedLogError(TypeError):
    """The attribute is not a log as this version of dask-strata knows it."""


class FollowedLog(deque[Any]):
    """A log that grows until all who follow it have read it.

    Iteration goes over a copy: trimming happens on another thread, and Dask must not see
    a deque that changes while it looks through it.
    """

    def __init__(self, log: deque[Any]) -> None:
        super().__init__(log)
        self.keep = log.maxlen
        self.trimmed = 0
        self.taps: list[LogTap] = []
        self.lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copied())

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.copied()[::-1])

    def __reduce__(self) -> Any:
        return deque, (list(self), self.keep)

    def __copy__(self) -> deque[Any]:  # type: ignore[override]  # the copy follows nothing
        return self.original()

    def copied(self, start: int = 0) -> list[Any]:
        """Return the entries from that index on, as they are at one moment."""
        while True:
            try:
                return list(islice(super().__iter__(), start, None))
            except RuntimeError:  # another thread changed it between two steps: read again
                continue

    def after(self, position: int) -> list[Any]:
        """Return the entries from that position on, counted from the first ever."""
        return self.copied(position - self.trimmed)

    def trim(self) -> None:
        """Let go of what everyone has read and Dask would have dropped."""
        if self.keep is None:
            return
        read = min((tap.position for tap in self.taps), default=self.trimmed + len(self))
        n = min(len(self) - self.keep, read - self.trimmed)
        let_go = self.popleft
        for _ in range(n):
            let_go()
        self.trimmed += max(n, 0)

    def original(self) -> deque[Any]:
        """Return the bounded deque that Dask would have now."""
        return deque(self, maxlen=self.keep)


class LogTap:
    """Reads each entry of one log of Dask's, once.

    Made and removed on the event loop's thread; `take` may be called from any one thread.

    Parameters
    ----------
    owner : object
        The scheduler, worker or state machine.
    attribute : str
        Name of its log.

    Raises
    ------
    UnexpectedLogError
        There is no such log, or it is no deque.
    """

    def __init__(self, owner: Any, attribute: str) -> None:
        log = getattr(owner, attribute, None)
        if type(log) is deque:
            log = FollowedLog(log)
            setattr(owner, attribute, log)
        if not isinstance(log, FollowedLog):
            raise UnexpectedLogError(f"{type(owner).__name__}.{attribute} is {type(log).__name__}")
        self._owner, self._attribute, self._log = owner, attribute, log
        #: What was not taken when this was removed: others may follow the log on.
        self._left: list[Any] | None = None
        with log.lock:
            self.position = log.trimmed + len(log)
            log.taps.append(self)

    def take(self) -> list[Any]:
        """Return the entries that were logged since the last call."""
        log = self._log
        with log.lock:
            if self._left is not None:
                entries, self._left = self._left, []
                return entries
            entries = log.after(self.position)
            self.position += len(entries)
            log.trim()
        return entries

    def peek(self) -> list[Any]:
        """Return the entries that the next `take` begins with."""
        with self._log.lock:
            return self._log.after(self.position) if self._left is None else list(self._left)

    def remove(self) -> None:
        """Stop following: `take` returns what was logged up to now, and no more.

        The last to go puts a plain deque back.
        """
        log = self._log
        with log.lock:
            if self in log.taps:
                log.taps.remove(self)
                self._left = log.after(self.position)
            if not log.taps and getattr(self._owner, self._attribute, None) is log:
                setattr(self._owner, self._attribute, log.original())


def follow(*logs: tuple[Any, str]) -> list[LogTap]:
    """Return a tap for each log, given as owner and attribute: for all of them or for none.

    Raises
    ------
    UnexpectedLogError
        One of them is not as expected; nothing has changed then.
    """
    taps: list[LogTap] = []
    try:
        for owner, attribute in logs:
            taps.append(LogTap(owner, attribute))
    except UnexpectedLogError:
        for tap in taps:
            tap.remove()
        raise
    return taps


class HandlerTap:
    """Sees the messages to one stream handler before the handler does.

    Parameters
    ----------
    handlers : dict
        Dask's handlers by the name of the operation.
    operation : str
        The operation.
    seen : callable
        Called with the message, a dict. It must not raise.

    Raises
    ------
    UnexpectedLogError
        There is no such handler.
    """

    def __init__(self, handlers: dict[str, Any], operation: str, seen: Any) -> None:
        if not callable(handlers.get(operation)):
            raise UnexpectedLogError(f"no stream handler {operation!r}")
        self._handlers, self._operation = handlers, operation
        self._next = [handlers[operation]]
        chain = self._next

        def handler(**message: Any) -> Any:
            seen(message)
            return chain[0](**message)

        handler.strata_next = chain  # type: ignore[attr-defined]
        self._handler = handler
        handlers[operation] = handler

    def remove(self) -> None:
        """Take ourselves out of the chain of handlers, wherever we are in it."""
        current = self._handlers.get(self._operation)
        if current is self._handler:
            self._handlers[self._operation] = self._next[0]
            return
        while (chain := getattr(current, "strata_next", None)) is not None:
            if chain[0] is self._handler:
                chain[0] = self._next[0]
                return
            current = chain[0]
