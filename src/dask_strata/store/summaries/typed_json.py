"""Frozen dataclasses as JSON, and back: the types come from the hints of the fields.

The JSON may come from anyone. A value of another type than its hint is an error, never converted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: Integers have to be less than this, as those of the tables.
_INTEGERS = 1 << 63


def to_json(value: Any) -> Any:
    """Return a value that `json.dumps` accepts.

    Parameters
    ----------
    value : object
        A dataclass, tuple, dict with texts as keys, datetime in UTC, text, number or None, or any
        nesting of these.

    Raises
    ------
    TypeError
        A value is of another type.
    ValueError
        A number is infinite or not a number, or too large.

    Examples
    --------
    >>> to_json({"a": (1, None)})
    {'a': [1, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {_checked(name, str): to_json(each) for name, each in value.items()}
    if isinstance(value, datetime):
        return _utc(value).isoformat()
    if value is None or type(value) in _PLAIN:
        return value if value is None else _checked(value, type(value))
    raise TypeError(type(value))


def from_json(kind: type[T], value: Any) -> T:
    """Return the value of a type that JSON contains.

    Parameters
    ----------
    kind : type
        The type: a dataclass, or any type in its hints.
    value : object
        The JSON, as `json.loads` returns it.

    Raises
    ------
    TypeError
        The JSON is not of that type.
    ValueError
        A number is infinite, not a number or too large, or a text is not a time in UTC.

    Examples
    --------
    >>> from_json(tuple[int, ...], [1, 2])
    (1, 2)
    """
    return cast("T", _from_json(kind, value))


def _from_json(kind: Any, value: Any) -> Any:
    if kind in _PLAIN:
        return _checked(value, kind)
    if kind is datetime:
        return _utc(datetime.fromisoformat(_checked(value, str)))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        if _checked(value, dict).keys() != hints.keys():
            raise TypeError("it has other fields")
        return kind(**{n: _from_json(hint, value[n]) for n, hint in hints.items()})
    read = _GENERIC.get(get_origin(kind))
    if read is None:
        raise TypeError(f"{kind} is not supported")
    return read(get_args(kind), value)


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    values = _checked(value, list)
    if kinds[1:] == (...,):
        return tuple(_from_json(kinds[0], each) for each in values)
    if len(values) != len(kinds):
        raise TypeError("it has another number of values")
    return tuple(_from_json(kind, each) for kind, each in zip(kinds, values, strict=True))


def _dict(kinds: tuple[Any, ...], value: Any) -> dict[str, Any]:
    return {name: _from_json(kinds[1], each) for name, each in _checked(value, dict).items()}


def _optional(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in kinds:
        return None
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    return _from_json(kind, value)


def _literal(values: tuple[Any, ...], value: Any) -> Any:
    if _checked(value, str) not in values:
        raise TypeError("it is none of the accepted texts")
    return value


_PLAIN = (str, int, float, bool)

_GENERIC: dict[Any, Callable[[tuple[Any, ...], Any], Any]] = {
    tuple: _tuple,
    dict: _dict,
    Union: _optional,
    UnionType: _optional,
    Literal: _literal,
}


def _checked(value: Any, kind: type) -> Any:
    """Return a value of exactly one type; an int is a float, too."""
    if type(value) is not kind and (kind is not float or type(value) is not int):
        raise TypeError(f"it is not of the type {kind.__name__}")
    if type(value) is int and abs(value) >= _INTEGERS:
        raise ValueError("it contains a number that is too large")
    if type(value) is float and not math.isfinite(value):
        raise ValueError("it contains a number that is not finite")
    return value


def _utc(time: datetime) -> datetime:
    if time.utcoffset() != timedelta(0):
        raise ValueError("it contains a time that is not in UTC")
    return time


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
