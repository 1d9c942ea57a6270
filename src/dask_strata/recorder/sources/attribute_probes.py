"""Probes: attributes of a library's classes that report when they are looked up or set.

A probe replaces an attribute of a class by a descriptor. Calls of the library do not pass through
it. So it adds no frame to tracebacks, changes no argument, and leaves results and pickles as they
are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

#: Marks a name that the class did not have before the probe.
_NOTHING = object()

#: Errors of notes since the last `take_note_errors`, each text once.
_errors: dict[str, None] = {}
_MOST_ERRORS = 100


def take_note_errors() -> list[str]:
    """Return the errors of notes since the last call, each text once."""
    found = list(_errors)
    for text in found:
        _errors.pop(text, None)
    return found


def _call(note: Callable[..., None], *arguments: Any) -> None:
    try:
        note(*arguments)
    except Exception as error:  # noqa: BLE001  a note must not fail the library's call
        if len(_errors) < _MOST_ERRORS:
            _errors[f"{getattr(note, '__name__', 'note')}: {error!r}"] = None


class LookupProbe:
    """Replaces a method, and reports each lookup, which comes just before a call.

    Parameters
    ----------
    original : function, classmethod
        The method.
    note : callable
        Called with the object, or with None for a lookup on the class.

    Examples
    --------
    >>> class Reader:
    ...     def read(self):
    ...         return "data"
    >>> Reader.read = LookupProbe(Reader.read, lambda reader: print("lookup"))
    >>> Reader().read()
    lookup
    'data'
    """

    def __init__(self, original: Any, note: Callable[[Any], None]) -> None:
        self.original = original
        self.note: Callable[[Any], None] | None = note

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        note = self.note
        if note is not None:
            _call(note, thing)
        return self.original.__get__(thing, owner)


class ChangeProbe:
    """Replaces an attribute of instances, and reports each assignment.

    The value stays in the instance's own dictionary, so pickles and copies are the same.

    Parameters
    ----------
    name : str
        Name of the attribute.
    note : callable
        Called with the object, the value before (None without one), the new value, and the frame
        that assigns it.

    Examples
    --------
    >>> class Source:
    ...     pass
    >>> Source.n = ChangeProbe("n", lambda source, before, value, frame: print(before, value))
    >>> Source().n = 7
    None 7
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
            _call(note, thing, before, value, sys._getframe(1))  # noqa: SLF001  the frame that assigns

    def __delete__(self, thing: Any) -> None:
        try:
            del thing.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None


def _noted(original: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        current_note = function.note  # type: ignore[attr-defined]
        if current_note is not None:
            _call(current_note, *args)
        return original(*args, **kwargs)

    function.note = note  # type: ignore[attr-defined]
    return function


class Probes:
    """Places probes, and removes all of them at once."""

    def __init__(self) -> None:
        self._placed: list[tuple[type | ModuleType, str, Any, Any]] = []

    def on_look(self, owner: type, name: str, note: Callable[[Any], None]) -> None:
        """Report lookups of a method that the class itself defines; else do nothing."""
        original = vars(owner).get(name)
        if original is not None and not isinstance(original, LookupProbe):
            self._place(owner, name, LookupProbe(original, note))

    def on_change(
        self, owner: type, name: str, note: Callable[[Any, Any, Any, FrameType], None]
    ) -> None:
        """Report assignments to an attribute of instances, if no class attribute has its name."""
        if name not in vars(owner):
            self._place(owner, name, ChangeProbe(name, note))

    def on_call(self, owner: ModuleType, name: str, note: Callable[..., None]) -> None:
        """Report calls of a module's function. These do pass through the probe."""
        original = vars(owner).get(name)
        if original is not None:
            self._place(owner, name, _noted(original, note))

    def _place(self, owner: type | ModuleType, name: str, probe: Any) -> None:
        original = vars(owner).get(name, _NOTHING)
        setattr(owner, name, probe)
        self._placed.append((owner, name, original, probe))

    def remove(self) -> None:
        """Restore all attributes; silence a probe that other code has replaced or wrapped."""
        for owner, name, original, probe in reversed(self._placed):
            probe.note = None
            if vars(owner).get(name) is not probe:
                continue
            if original is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._placed.clear()
