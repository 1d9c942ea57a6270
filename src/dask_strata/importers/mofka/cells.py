"""Convert cells of a CSV file to values: one cell in Python, or a whole column in Arrow."""

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

#: Arrow types of the values. In the file, a time is in Unix seconds.
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
    """A column that a file may have.

    Attributes
    ----------
    name : str
        Its name in the header.
    kind : str
        Kind of its values; ``long`` is text that may be megabytes long, such as a dict of keys.
    required : bool
        Whether a row without a value in it is set aside.
    """

    name: str
    kind: Kind
    required: bool = False


def value(field: Field, text: str) -> Any:
    """Return the value of a cell; None for an empty one. A time is integer nanoseconds.

    Parameters
    ----------
    field : Field
        Its column.
    text : str
        The cell.

    Raises
    ------
    ValueError
        The cell is empty but required, or is not of the column's kind. The message is the
        reason that is shown to the user.

    Examples
    --------
    >>> value(Field("size", "int"), "8.0"), value(Field("time", "time"), "1713553304.5")
    (8, 1713553304500000000)
    """
    if not text:
        if field.required:
            raise ValueError(f"{field.name} is empty")
        return None
    # Python accepts numbers that Arrow's CSV reader refuses: 1_000, and digits of other scripts.
    if field.kind in _NAMES and ("_" in text or not text.isascii()):
        raise ValueError(f"{field.name} is not a valid {_NAMES[field.kind]}")
    try:
        if field.kind == "time":
            return nanoseconds(text)
        if field.kind == "int":
            return _integer(text)
        if field.kind == "number":
            return float(text)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{field.name} is not a valid {_NAMES[field.kind]}") from None
    return text


_NAMES = {"time": "time", "int": "integer", "number": "number"}


def nanoseconds(text: str) -> int:
    """Return a time in nanoseconds since the epoch.

    Parameters
    ----------
    text : str
        Unix seconds, or ISO 8601; in UTC if it has no zone.

    Raises
    ------
    ValueError, ArithmeticError
        The text is no time between 1970 and 2262.

    Examples
    --------
    >>> nanoseconds("1.000000001"), nanoseconds("1970-01-01T00:00:01Z")
    (1000000001, 1000000000)
    """
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
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
    """Return the type as which Arrow's CSV reader parses a column; `converted` does the rest.

    Decimals keep every digit of a time, and accept integers that are written as ``8.0``.
    """
    if field.kind == "time":
        return pa.decimal128(20, 9)
    if field.kind == "int":
        return pa.decimal128(38, 9)
    return ARROW[field.kind]


def plain(field: Field) -> pa.DataType:
    """Return the Arrow type of the Python values of `value`, which is then cast to `ARROW`."""
    return {"time": pa.int64(), "text": pa.string()}.get(field.kind, ARROW[field.kind])


def converted(field: Field, column: pa.Array) -> pa.Array:
    """Convert a column that Arrow parsed as `parsed_as` to its type in `ARROW`.

    Parameters
    ----------
    field : Field
        The column.
    column : pyarrow.Array
        Its cells.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        `value` would refuse one of the cells.
    """
    if field.required and column.null_count:
        raise ValueError(f"{field.name} is empty")
    if field.kind == "time":
        return _unscaled(column)
    if field.kind == "number":
        return column
    return column.cast(ARROW[field.kind])


def _unscaled(column: pa.Array) -> pa.Array:
    """Return decimal seconds with nine decimal places as nanoseconds: their unscaled integers."""
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
