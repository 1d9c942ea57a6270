"""What a cell of a CSV file may hold, and how its text becomes a value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["time", "int", "number", "text", "key", "long"]

_NANOSECONDS = 1_000_000_000
_MAX = 1 << 63
_TIME = pa.timestamp("ns", "UTC")

#: Arrow types of the values. A time is Unix seconds in the file.
ARROW: dict[Kind, pa.DataType] = {
    "time": _TIME,
    "int": pa.int64(),
    "number": pa.float64(),
    "text": pa.dictionary(pa.int32(), pa.string()),
    "key": pa.string(),
    "long": pa.string(),
}


@dataclass(frozen=True)
class Field:
    """A column that a file may have. A row without a value for a required one is set aside."""

    name: str
    kind: Kind
    required: bool = False


def value(field: Field, text: str) -> Any:
    """Return the value of a cell; null for an empty one.

    Raises
    ------
    ValueError
        It has none, or no such value; the message is a reason for the user.
    """
    if not text:
        if field.required:
            raise ValueError(f"{field.name} is empty")
        return None
    # Python takes numbers that no CSV reader takes: 1_000, and digits of other scripts.
    if field.kind in _NAMES and ("_" in text or not text.isascii()):
        raise ValueError(f"{field.name} is no {_NAMES[field.kind]}")
    try:
        if field.kind == "time":
            return nanoseconds(text)
        if field.kind == "int":
            return _integer(text)
        if field.kind == "number":
            return float(text)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{field.name} is no {_NAMES[field.kind]}") from None
    return text


_NAMES = {"time": "time", "int": "integer", "number": "number"}


def nanoseconds(text: str) -> int:
    """Return the nanoseconds of a time in Unix seconds or ISO 8601 (UTC unless it says).

    Raises
    ------
    ValueError, ArithmeticError
        It is no time between 1970 and 2262.
    """
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        when = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
        when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        since = when - datetime(1970, 1, 1, tzinfo=timezone.utc)
        seconds = Decimal(since.days * 86400 + since.seconds) + Decimal(since.microseconds) / 10**6
    if not seconds.is_finite() or not 0 <= seconds <= _MAX // _NANOSECONDS + 1:
        raise ValueError(text)
    found = int((seconds * _NANOSECONDS).to_integral_value())
    if found >= _MAX:
        raise ValueError(text)
    return found


def _integer(text: str) -> int:
    number = Decimal(text)
    if not number.is_finite() or abs(number) >= _MAX or number != int(number):
        raise ValueError(text)
    return int(number)


def parsed_as(field: Field) -> pa.DataType:
    """Return the type that Arrow's CSV reader is to parse a column as.

    Decimals keep every digit of a time and of an integer that was written as ``8.0``.
    """
    if field.kind == "time":
        return pa.decimal128(20, 9)
    if field.kind == "int":
        return pa.decimal128(38, 9)
    return ARROW[field.kind]


def plain(field: Field) -> pa.DataType:
    """Return the type that Python values of a field are made into first."""
    return {"time": pa.int64(), "text": pa.string()}.get(field.kind, ARROW[field.kind])


def converted(field: Field, column: pa.Array) -> pa.Array:
    """Return a column that Arrow parsed, as the type of its values.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        Some cell of it has no such value, or a required one has none: see `value`.
    """
    if field.required and column.null_count:
        raise ValueError(f"{field.name} is empty")
    if field.kind == "time":
        return _unscaled(column)
    if field.kind == "number":
        return column
    return column.cast(ARROW[field.kind])


def _unscaled(column: pa.Array) -> pa.Array:
    """Return decimals with nine digits behind the point as nanoseconds, without arithmetic."""
    words = pa.Array.from_buffers(
        pa.int64(), 2 * (len(column) + column.offset), [None, column.buffers()[1]]
    )[2 * column.offset :]
    halves = pa.FixedSizeListArray.from_arrays(words, 2)
    low, high = (pc.list_element(halves, i) for i in (0, 1))
    valid = column.is_valid()
    for half, limit in ((high, 0), (low, math.inf)):
        extremes = pc.min_max(half.filter(valid))
        least, most = extremes["min"].as_py(), extremes["max"].as_py()
        if least is not None and (least < 0 or most > limit):
            raise ValueError("a time is out of range")
    return pc.if_else(valid, low, pa.scalar(None, pa.int64())).cast(_TIME)
