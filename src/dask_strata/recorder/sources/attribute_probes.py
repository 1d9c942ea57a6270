"""Seeing a library at work without standing in its way.

A probe takes the place of an attribute of a class. It is told when the attribute is looked
up or set, and no call passes through it: no frame of ours is in anybody's traceback, no
argument can be handed on wrongly, and what a method returns or pickles to stays the same.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

#: What a class has under a name that it does not have.
_NOTHING = object()


class Looked:
    """Takes the place of a method, and tells when it is about to be called.

    Parameters
    ----------
    original : function, classmethod
        What it takes the place of.
    note : callable
        Is told of the object, or None for a method of the class.
    """

    def __init__(self, original: Any, note: Callable[[Any], None]) -> None:
        self.original = original
        self.note: Callable[[Any], None] | None = note

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        note = self.note
        if note is not None:
            with contextlib.suppress(Exception):
                note(thing)
        return self.original.__get__(thing, owner)


class Changed:
    """Takes the place of an attribute of instances, and tells when one is set.

    The value stays where it was, in the instance: pickles and copies know nothing of it.

    Parameters
    ----------
    name : str
        Name of the attribute.
    note : callable
        Is told of the object, the value before (None if there was none), the value now, and
        the frame that sets it.
    """

    def __init__(self, name: str, note: Callable[[Any, Any, Any, FrameType], None]) -> None:
        self.name = name
        self.note: Callable[[Any, Any, Any, FrameType], None] | None = note

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        try:
            return thing.__dict__[self.name]
        except (AttributeError, KeyError):
            kind = owner if thing is None or owner is None else type(thing)
            named = getattr(kind, "__name__", kind)
            raise AttributeError(f"{named!r} object has no attribute {self.name!r}") from None

    def __set__(self, thing: Any, value: Any) -> None:
        before = thing.__dict__.get(self.name)
        thing.__dict__[self.name] = value
        note = self.note
        if note is not None:
            with contextlib.suppress(Exception):
                note(thing, before, value, sys._getframe(1))  # noqa: SLF001  what sets it

    def __delete__(self, thing: Any) -> None:
        try:
            del thing.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None


def _told(original: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        heard = function.note  # type: ignore[attr-defined]
        if heard is not None:
            with contextlib.suppress(Exception):
                heard(*args)
        return original(*args, **kwargs)

    function.note = note  # type: ignore[attr-defined]
    return function


class Probes:
    """Probes that are in place, to be taken out again."""

    def __init__(self) -> None:
        self._placed: list[tuple[type | ModuleType, str, Any, Any]] = []

    def on_look(self, owner: type, name: str, note: Callable[[Any], None]) -> None:
        """Tell when a method is looked up, if the class itself has it."""
        original = vars(owner).get(name)
        if original is not None and not isinstance(original, Looked):
            self._place(owner, name, Looked(original, note))

    def on_change(
        self, owner: type, name: str, note: Callable[[Any, Any, Any, FrameType], None]
    ) -> None:
        """Tell when an attribute of instances is set, if the class itself has none of that name."""
        if name not in vars(owner):
            self._place(owner, name, Changed(name, note))

    def on_call(self, owner: ModuleType, name: str, note: Callable[..., None]) -> None:
        """Tell when a function of a module is called: one that is private to it, and harmless."""
        original = vars(owner).get(name)
        if original is not None:
            self._place(owner, name, _told(original, note))

    def _place(self, owner: type | ModuleType, name: str, probe: Any) -> None:
        original = vars(owner).get(name, _NOTHING)
        setattr(owner, name, probe)
        self._placed.append((owner, name, original, probe))

    def remove(self) -> None:
        """Put back what was there; a probe that somebody put something over falls silent."""
        for owner, name, original, probe in reversed(self._placed):
            probe.note = None
            if vars(owner).get(name) is not probe:
                continue
            if original is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._placed.clear()
