"""What extractors are given: a call, as a task's definition has it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_mro = type.__dict__["__mro__"].__get__
_name_of_type = type.__dict__["__qualname__"].__get__
_module_of_type = type.__dict__["__module__"].__get__


class Later:
    """Stands for what is known only when the task runs: the result of another task."""

    def __repr__(self) -> str:
        return "<result of another task>"


LATER = Later()


@dataclass(slots=True)
class Call:
    """A call, as a task's definition has it.

    Attributes
    ----------
    name : str
        Qualified name of the function, or of the type of the callable object.
    function : callable
        The function or object, without the partials around it.
    args, kwargs
        The arguments, those of partials included. Data that the graph holds is in its place;
        a call within is a `Call`; the result of another task is `LATER`.
    memo : dict
        Remembers what an extractor likes while the tasks of one submission are looked at.
    """

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def argument(self, place: int, name: str) -> Any:
        """Return an argument by its place or name; None if it is not given."""
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name)


def mro(kind: type) -> tuple[type, ...]:
    """Return the bases of a type; a metaclass has no say in it."""
    return _mro(kind)  # type: ignore[no-any-return]


def type_name(kind: type) -> str:
    """Return the qualified name of a type; a metaclass has no say in it."""
    try:
        return f"{_module_of_type(kind)}.{_name_of_type(kind)}"
    except Exception:  # noqa: BLE001  a type may lie about its module
        return "?"


def peek(thing: Any, name: str) -> Any:
    """Return an attribute, or None: a user's `__getattr__` is not asked."""
    try:
        return object.__getattribute__(thing, name)
    except Exception:  # noqa: BLE001  properties may do anything
        return None


def function_name(function: Any) -> str:
    """Return the qualified name of a function, or of the type of a callable object."""
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, type):
        return type_name(function)
    name = peek(function, "__qualname__")
    module = peek(function, "__module__")
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    return type_name(type(function))
