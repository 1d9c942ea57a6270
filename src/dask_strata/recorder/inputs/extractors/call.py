"""Calls in a task's definition, and safe access to attributes of foreign objects."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_mro = type.__dict__["__mro__"].__get__
_name_of_type = type.__dict__["__qualname__"].__get__
_module_of_type = type.__dict__["__module__"].__get__


class Later:
    """Stands for the result of another task, which exists only when the task runs."""

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
        The arguments, including those of partials. References to data of the graph are replaced by
        the data, nested calls by a `Call`, and results of other tasks by `LATER`.
    memo : dict
        A cache for the extractor's own use, shared by the calls of one submission.

    Examples
    --------
    >>> call = Call("mylab.read", print, ("/data/x",), {"first": 7})
    >>> call.argument(0, "path"), call.argument(1, "first"), call.argument(2, "last")
    ('/data/x', 7, None)
    """

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def argument(self, position: int, name: str) -> Any:
        """Return an argument by its position or name; None if the call has no such argument."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name)


def mro(kind: type) -> tuple[type, ...]:
    """Return the bases of a type, without running code of its metaclass."""
    return _mro(kind)  # type: ignore[no-any-return]


def type_name(kind: type) -> str:
    """Return the qualified name of a type, without running code of its metaclass.

    >>> type_name(dict)
    'builtins.dict'
    """
    try:
        return f"{_module_of_type(kind)}.{_name_of_type(kind)}"
    except Exception:  # noqa: BLE001  a type may have any object as its module
        return "?"


def peek(thing: Any, name: str) -> Any:
    """Return an attribute, or None without one; do not call a user's `__getattr__`."""
    try:
        return object.__getattribute__(thing, name)
    except Exception:  # noqa: BLE001  properties may do anything
        return None


def function_name(function: Any) -> str:
    """Return the qualified name of a function, or of the type of a callable object.

    >>> import functools, json
    >>> function_name(json.dumps), function_name(functools.partial(print))
    ('json.dumps', 'functools.partial')
    """
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, type):
        return type_name(function)
    name = peek(function, "__qualname__")
    module = peek(function, "__module__")
    if isinstance(name, str) and isinstance(module, str):
        return f"{module}.{name}"
    return type_name(type(function))
