"""Values of odd types: columns of format 1, and values that have no typed bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask_strata.schema import Kind
from dask_strata.store.limits import COUNT, TIME_NS

_INT64 = 1 << 63


def usable_values(kind: Kind, values: Sequence[Any]) -> tuple[list[Any], int]:
    """Return values of which those of a wrong type are null, and their number.

    Parameters
    ----------
    kind : Kind
        Kind of their column.
    values : sequence
        Any values.

    Examples
    --------
    >>> usable_values("int", [1, "x", None, 2.0, 1 << 70])
    ([1, None, None, 2, None], 2)
    """
    types = set(map(type, values))
    if types <= _TYPES[kind] and (int not in types or _fit(values)):
        return list(values), 0
    convert = _CONVERTERS[kind]
    usable = [None if value is None else convert(value) for value in values]
    return usable, usable.count(None) - list(map(type, values)).count(type(None))


#: Types whose values are usable as they are; integers may be too large.
_TYPES: dict[Kind, set[type]] = {
    "time": {int, type(None)},
    "bytes": {int, type(None)},
    "int": {int, type(None)},
    "seconds": {float, type(None)},
    "float": {float, type(None)},
    "bool": {bool, type(None)},
    "text": {str, type(None)},
    "long": {str, type(None)},
    "key": {str, type(None)},
    "intervals": {type(None)},
}


def _fit(values: Sequence[Any]) -> bool:
    """Return whether 64 bits hold all integers."""
    integers: list[int] = [value for value in values if value is not None]
    return min(integers) >= -_INT64 and max(integers) < _INT64


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_INT64 <= value < _INT64 else None


def _float(value: Any) -> float | None:
    if isinstance(value, int) and abs(value) <= COUNT:
        return float(value)
    return value if isinstance(value, float) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def _intervals(value: Any) -> list[Any] | None:
    """Return the intervals of a row, or None if one of them is malformed or out of range."""
    try:
        for action, start, duration, source in value:
            texts = isinstance(action, str | None) and isinstance(source, str | None)
            if not texts or type(start) is not int or type(duration) is not int:
                return None
            if not 0 <= start < TIME_NS or not 0 <= start + duration < TIME_NS:
                return None
    except (TypeError, ValueError):
        return None
    return list(value)


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    "time": _integer,
    "seconds": _float,
    "bytes": _integer,
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "text": _text,
    "long": _text,
    "key": _text,
    "intervals": _intervals,
}
