"""Handlers of a scheduler that a recording replaces, and restores at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HandlerHook:
    """Replaces a handler of a scheduler; several recordings may replace the same one.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    name : str
        Name of the handler.
    handler : callable
        A method of this object, which calls `original`.
    """

    def __init__(self, scheduler: Any, name: str, handler: Callable[..., Any]) -> None:
        self._handlers, self._name, self._handler = scheduler.handlers, name, handler
        self.original = self._handlers[name]
        self._handlers[name] = handler

    def restore(self) -> None:
        """Restore the handler, or take this one out from under that of another recording."""
        top = self._handlers.get(self._name)
        if top is self._handler:
            self._handlers[self._name] = self.original
            return
        other = getattr(top, "__self__", None)
        while isinstance(other, HandlerHook):
            if other.original is self._handler:
                other.original = self.original
                return
            other = getattr(other.original, "__self__", None)
