"""Reading Dask's own logs and messages at next to no cost to the event loop.

Dask appends each transition and transfer to a bounded deque. A `LogFollower` replaces it by a
`FollowedLog`, a deque without a bound, to which the event loop appends as before, in C. The
recorder's thread reads the new entries and trims the log to Dask's own bound. So each entry is
read exactly once, and no Python code of the recorder runs on the event loop.

These attributes of Dask are not documented. If one differs from the expected form, the classes
here raise `UnexpectedLogError`, and the scheduler's recorder uses Dask's plugin calls instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, repeat, starmap
from operator import length_hint
from typing import Any


class UnexpectedLogError(TypeError):
    """An attribute of Dask is not a log or handler of the expected form."""


class FollowedLog(deque[Any]):
    """A log that keeps every entry until all followers have read it.

    Iteration goes over a copy: the recorder's thread trims the log, and a deque that changes
    during iteration raises in Dask.

    Parameters
    ----------
    log : deque
        Dask's log; its entries are copied.

    Examples
    --------
    >>> log = FollowedLog(deque([1, 2], maxlen=2))
    >>> log.append(3)
    >>> list(log), log.original()
    ([1, 2, 3], deque([2, 3], maxlen=2))
    """

    def __init__(self, log: deque[Any]) -> None:
        super().__init__(log)
        self.bound = log.maxlen
        self.trimmed = 0
        self.followers: list[LogFollower] = []
        self.lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copied())

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.copied()[::-1])

    def __reduce__(self) -> Any:
        return deque, (list(self), self.bound)

    def __copy__(self) -> deque[Any]:  # type: ignore[override]  # a copy has no followers
        return self.original()

    def copied(self, start: int = 0) -> list[Any]:
        """Return the entries from that index on, as they are at one moment."""
        while True:
            # From the end: a follower has read most of the entries that Dask keeps.
            newest = super().__reversed__()
            try:
                entries = list(islice(newest, max(length_hint(newest) - start, 0)))
            except RuntimeError:  # another thread changed the deque meanwhile: read it again
                continue
            entries.reverse()
            return entries

    def after(self, position: int) -> list[Any]:
        """Return the entries from that position on, counted from the first entry ever."""
        return self.copied(position - self.trimmed)

    def trim(self) -> None:
        """Drop the entries that all followers have read and that exceed Dask's bound."""
        if self.bound is None:
            return
        positions = (follower.position for follower in self.followers)
        read = min(positions, default=self.trimmed + len(self))
        n = max(min(len(self) - self.bound, read - self.trimmed), 0)
        # A loop in C: an empty deque discards each entry.
        deque(starmap(self.popleft, repeat((), n)), maxlen=0)
        self.trimmed += n

    def original(self) -> deque[Any]:
        """Return the bounded deque that Dask would have now."""
        return deque(self, maxlen=self.bound)


class LogFollower:
    """Reads each new entry of one of Dask's logs once.

    Create and remove it on the event loop's thread. Call `take` from one other thread only.

    Parameters
    ----------
    owner : object
        The scheduler, worker or state machine.
    attribute : str
        Name of its log.

    Raises
    ------
    UnexpectedLogError
        The attribute does not exist or is not a plain deque.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> worker = SimpleNamespace(log=deque([1], maxlen=2))
    >>> follower = LogFollower(worker, "log")
    >>> worker.log.extend([2, 3])
    >>> follower.take(), follower.take()
    ([2, 3], [])
    >>> follower.remove()
    >>> worker.log
    deque([2, 3], maxlen=2)
    """

    def __init__(self, owner: Any, attribute: str) -> None:
        log = getattr(owner, attribute, None)
        if type(log) is deque:
            log = FollowedLog(log)
            setattr(owner, attribute, log)
        if not isinstance(log, FollowedLog):
            raise UnexpectedLogError(f"{type(owner).__name__}.{attribute} is {type(log).__name__}")
        self._owner, self._attribute, self._log = owner, attribute, log
        #: Unread entries at the time of removal: the log may go on for other followers.
        self._remaining: list[Any] | None = None
        with log.lock:
            self.position = log.trimmed + len(log)
            log.followers.append(self)

    def take(self) -> list[Any]:
        """Return the entries that were logged since the last call."""
        log = self._log
        with log.lock:
            if self._remaining is not None:
                entries, self._remaining = self._remaining, []
                return entries
            entries = log.after(self.position)
            self.position += len(entries)
            log.trim()
        return entries

    def peek(self) -> list[Any]:
        """Return the entries with which the result of the next `take` begins."""
        with self._log.lock:
            if self._remaining is None:
                return self._log.after(self.position)
            return list(self._remaining)

    def remove(self) -> None:
        """Stop following; the next `take` returns the entries up to now, later ones nothing.

        The removal of the last follower gives the owner a plain deque again.
        """
        log = self._log
        with log.lock:
            if self in log.followers:
                log.followers.remove(self)
                self._remaining = log.after(self.position)
            if not log.followers and getattr(self._owner, self._attribute, None) is log:
                setattr(self._owner, self._attribute, log.original())


def follow(*logs: tuple[Any, str]) -> list[LogFollower]:
    """Follow several logs: either all of them, or none if one is unexpected.

    Parameters
    ----------
    *logs : (object, str)
        Owner and attribute of each log.

    Returns
    -------
    list of LogFollower
        One follower for each log.

    Raises
    ------
    UnexpectedLogError
        One of the logs is not of the expected form; all owners are unchanged then.
    """
    followers: list[LogFollower] = []
    try:
        for owner, attribute in logs:
            followers.append(LogFollower(owner, attribute))
    except UnexpectedLogError:
        for follower in followers:
            follower.remove()
        raise
    return followers


class MessageHook:
    """Calls a function with each message to a stream handler, before the handler runs.

    Parameters
    ----------
    handlers : dict
        Dask's handlers by the name of the operation.
    operation : str
        The operation.
    note : callable
        Called on the event loop with the message, a dict. It must not raise.

    Raises
    ------
    UnexpectedLogError
        Dask has no such handler.

    Examples
    --------
    >>> handlers = {"task-finished": lambda key: f"finished {key}"}
    >>> messages = []
    >>> hook = MessageHook(handlers, "task-finished", messages.append)
    >>> handlers["task-finished"](key="x"), messages
    ('finished x', [{'key': 'x'}])
    """

    def __init__(
        self, handlers: dict[str, Any], operation: str, note: Callable[[dict[str, Any]], Any]
    ) -> None:
        if not callable(handlers.get(operation)):
            raise UnexpectedLogError(f"no stream handler {operation!r}")
        self._handlers, self._operation = handlers, operation
        self._next = [handlers[operation]]
        chain = self._next

        def handler(**message: Any) -> Any:
            note(message)
            return chain[0](**message)

        handler.strata_next = chain  # type: ignore[attr-defined]
        self._handler = handler
        handlers[operation] = handler

    def remove(self) -> None:
        """Remove this hook from the chain of handlers, at any position in it."""
        current = self._handlers.get(self._operation)
        if current is self._handler:
            self._handlers[self._operation] = self._next[0]
            return
        while (chain := getattr(current, "strata_next", None)) is not None:
            if chain[0] is self._handler:
                chain[0] = self._next[0]
                return
            current = chain[0]
