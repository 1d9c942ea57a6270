r"""Encoding the columns of a frame as typed bytes. The recorder uses this: no NumPy here.

A column is null (no value in any row) or a list that starts with its encoding:

=================================  =======================================================
``[CONST, v]``                     the same value in each row
``[PLAIN, [v, …]]``                one value a row, of any type
``[NUMBERS, code, b]``             numbers of a fixed width
``[STEPS, first, code, b]``        integers: the first one, then the differences as numbers
``[TEXTS, t, sizes, positions]``   the distinct texts in one piece (UTF-8), their lengths in
                                   bytes, and the position of each row's text among them, or
                                   null if each row has a text of its own
``[SOME, b, column]``              a bit for each row that has a value (the lowest bit of the
                                   first byte is the first row), then the column of the values
``[INTERVALS, sizes, …]``          the number of intervals of each row, then the columns of the
                                   four fields of all intervals
=================================  =======================================================

A code is the position in `CODES` of the numbers' type, all little-endian; with `PLANED` added, the
first bytes of all numbers precede all second bytes, and so on, which compresses better. Booleans
are bytes, 0 or 1. Sizes and positions are bytes, or ``[code, b]`` if one of them exceeds 255, or
one number for all. `DELTA`, `DICT` and `SPARSE` are encodings of format 1, see
`dask_strata.store.segments.earlier`; short columns still are `DELTA` or `SPARSE`.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, count, repeat
from operator import is_not, sub
from typing import Any

from dask_strata.schema import Kind
from dask_strata.store.limits import COLUMN_BYTES
from dask_strata.store.segments.intervals import Intervals

CONST, PLAIN, DELTA, DICT, SPARSE, NUMBERS, STEPS, TEXTS, SOME, INTERVALS = range(10)

#: Types of numbers, as in `array`: signed integers, unsigned ones, and floating point.
CODES = "bhiqBHId"
WIDTHS = (1, 2, 4, 8, 1, 2, 4, 8)
INT64, BYTE, UINT32, FLOAT = CODES.index("q"), CODES.index("B"), CODES.index("I"), 7

#: Flag of a code: bytes of equal significance are together.
PLANED = 64

#: Kinds of the four fields of an interval: action, start, duration and source.
INTERVAL_KINDS: tuple[Kind, ...] = ("long", "time", "int", "long")

#: First values and sums of differences of a column of `STEPS` are below this.
STEPS_LIMIT = 1 << 62

#: Shorter columns of numbers and of texts, and those with fewer values, are values of msgpack.
FEW, FEW_TEXTS, FEW_PRESENT = 32, 9, 64

#: Shorter columns gain too little from byte planes.
_PLANED_FROM = 64

_Encode = Callable[[Kind, list[Any], int], list[Any] | None]

_DIGITS = bytes.maketrans(b"\0\1", b"01")


class LargeColumnError(ValueError):
    """The texts of a column exceed the limit of a reader."""


@dataclass
class Sparse:
    """Values of a column that is null in most rows: a list, or `Intervals`.

    Examples
    --------
    >>> column = Sparse()
    >>> column.put(0, None)
    >>> column.put(7, "x")
    >>> column
    Sparse(rows=[7], values=['x'])
    """

    rows: list[int] = field(default_factory=list)
    values: Any = field(default_factory=list)

    def put(self, row: int, value: Any) -> None:
        """Add the value of one row, in ascending order of rows; None adds nothing."""
        if value is not None:
            self.rows.append(row)
            self.values.append(value)


def code_for(low: int, high: int) -> int:
    """Return the code of the narrowest integers that hold a range.

    Raises
    ------
    OverflowError
        64 bits do not hold it.

    Examples
    --------
    >>> [CODES[code_for(low, high)] for low, high in ((0, 255), (-1, 255), (0, 1 << 32))]
    ['B', 'h', 'q']
    """
    if low >= 0:
        if high < 1 << 8:
            return 4
        if high < 1 << 16:
            return 5
        if high < 1 << 32:
            return 6
    elif low >= -(1 << 31) and high < 1 << 31:
        if low >= -(1 << 15) and high < 1 << 15:
            return 0 if low >= -(1 << 7) and high < 1 << 7 else 1
        return 2
    if low < -(1 << 63) or high >= 1 << 63:
        raise OverflowError("64 bits do not hold these numbers")
    return 3


def encode_column(kind: Kind, column: Any, n: int) -> list[Any] | None:
    """Return a column in the form that msgpack packs.

    Parameters
    ----------
    kind : Kind
        Kind of the column in the schema. Values of other types are written one by one.
    column : list, Intervals, Sparse, str, int or float
        A value per row, some of them, or one value for all rows.
    n : int
        Number of rows.

    Raises
    ------
    LargeColumnError
        Its texts would exceed the limit of a reader; try fewer rows.
    TypeError
        A value in a column of texts is a list or a mapping.

    Examples
    --------
    >>> encode_column("text", ["a", "b", "a"], 3)
    [1, ['a', 'b', 'a']]
    >>> encode_column("int", list(range(40)), 40)[:2] == [NUMBERS, BYTE]
    True
    """
    if column.__class__ is not list:
        if isinstance(column, Intervals):
            return typed_column(kind, column, n, encode_column)
        return _sparse(kind, column, n) if isinstance(column, Sparse) else _constant(column, n)
    if n < _FEWEST[kind]:
        return _few(kind, column, n)
    return typed_column(kind, column, n, encode_column)


def typed_column(
    kind: Kind, column: Sequence[Any], n: int, encode_present: _Encode | None = None
) -> list[Any] | None:
    r"""Return a column as typed bytes, however short it is.

    Parameters
    ----------
    kind, column, n
        As for `encode_column`; the column is a list or `Intervals`.
    encode_present : callable, optional
        Function that encodes the values of a column with nulls; by default this one.

    Examples
    --------
    >>> typed_column("int", [1, 2, 300], 3)
    [5, 5, b'\x01\x00\x02\x00,\x01']
    """
    if n == 1 and kind != "intervals":
        return _constant(column[0], 1)
    try:
        return _ENCODERS[kind](column, n)
    except LargeColumnError:
        raise
    except (TypeError, ValueError, OverflowError, struct.error):
        pass  # a null, or a value of another type
    present = [value for value in column if value is not None]
    if len(present) == n:
        return _plain(kind, present)
    if not present:
        return None
    bits = _packed_bits(bytes(map(is_not, column, repeat(None))))
    return [SOME, bits, (encode_present or typed_column)(kind, present, len(present))]


def _packed_bits(flags: bytes | bytearray) -> bytes:
    return int(flags.translate(_DIGITS)[::-1], 2).to_bytes((len(flags) + 7) // 8, "little")


#: Least number of rows of a column that is typed.
_FEWEST: dict[Kind, int] = {
    "time": FEW,
    "seconds": FEW,
    "bytes": FEW,
    "int": FEW,
    "float": FEW,
    "bool": FEW,
    "text": FEW_TEXTS,
    "long": FEW_TEXTS,
    "key": FEW_TEXTS,
    "intervals": 0,
}


def _few(kind: Kind, column: list[Any], n: int) -> list[Any] | None:
    """Return a short column: msgpack is smaller and faster than bytes of a fixed width there."""
    first = column[0]
    if kind in ("text", "key"):
        return _constant(first, n) if len(dict.fromkeys(column)) == 1 else [PLAIN, column]
    if n == 1:
        return _constant(first, 1)
    try:
        if first == column[-1] and column.count(first) == n:
            return _constant(first, n)
        integers = kind == "time" and set(map(type, column)) == {int}
        if integers and max(column) - min(column) < STEPS_LIMIT:  # msgpack has 64 bits
            return [DELTA, first, list(map(sub, column[1:], column))]
    except (TypeError, ValueError):
        pass  # a null, or a value of another type
    return [PLAIN, column]


def _plain(kind: Kind, column: list[Any]) -> list[Any]:
    if kind in ("text", "key"):
        hash(tuple(column))  # a list in a column of texts is an error, which costs its row only
    return [PLAIN, column]


def _constant(value: Any, n: int) -> list[Any] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple, dict)):
        return [PLAIN, [value] * n]  # a reader refuses rows that share a list
    if isinstance(value, str):
        _check_size(text_size(value) * n)
    return [CONST, value]


def text_size(text: str) -> int:
    """Return the most bytes that a text may take: up to four for a character beyond ASCII."""
    return len(text) if text.isascii() else 4 * len(text)


def _check_size(text_bytes: int) -> None:
    if text_bytes > COLUMN_BYTES:
        raise LargeColumnError(f"{text_bytes:,} bytes of texts in one column of a frame")


def _sparse(kind: Kind, column: Sparse, n: int) -> list[Any] | None:
    present = len(column.rows)
    if present < FEW_PRESENT and kind != "intervals":
        return [SPARSE, column.rows, column.values] if present else None
    nulls = not isinstance(column.values, Intervals) and None in column.values
    if present == n or nulls or len(set(column.rows)) != present:
        values = [None] * n
        for row, value in zip(column.rows, column.values, strict=True):
            values[row] = value
        return encode_column(kind, values, n)
    return [SOME, _bits(tuple(column.rows), n), encode_column(kind, column.values, present)]


@lru_cache(maxsize=4)
def _bits(rows: tuple[int, ...], n: int) -> bytes:
    """Return a bit for each row; several columns of a table often have values in the same rows."""
    flags = bytearray(n)
    for row in rows:
        flags[row] = 1
    return _packed_bits(flags)


def _numbers(code: int, values: Sequence[Any], n: int) -> tuple[int, bytes]:
    """Return the code and the bytes of numbers, in planes if there are many."""
    if code == BYTE:
        return code, bytes(values)
    packed = struct.pack(f"<{n}{CODES[code]}", *values)
    width = WIDTHS[code]
    if n < _PLANED_FROM or width == 1:
        return code, packed
    return code | PLANED, b"".join([packed[i::width] for i in range(width)])


def _integers(column: list[Any], n: int) -> list[Any] | None:
    first = column[0]
    if first == column[-1] and column.count(first) == n:
        return _constant(first, n)
    low, high = min(column), max(column)
    return [NUMBERS, *_numbers(code_for(low, high), column, n)]


def _floats(column: list[Any], n: int) -> list[Any] | None:
    first = column[0]
    if first == column[-1] and column.count(first) == n:
        return _constant(first, n)
    return [NUMBERS, *_numbers(FLOAT, column, n)]


def _booleans(column: list[Any], n: int) -> list[Any] | None:
    if not set(column) <= {True, False}:
        raise TypeError("a value is not a boolean")
    if column.count(column[0]) == n:
        return _constant(column[0], n)
    return [NUMBERS, BYTE, bytes(column)]


def _times(column: list[Any], n: int) -> list[Any] | None:
    first = column[0]
    steps = list(map(sub, column[1:], column))
    if not 0 <= first < STEPS_LIMIT:
        return _integers(column, n)
    try:
        # Almost all columns of times ascend, and this finds out faster than their minimum.
        numbers = _numbers(UINT32, steps, n - 1)
    except struct.error:
        low, high = min(steps), max(steps)
        # This bounds the sums of all steps, in whatever order.
        if max(high, -low) * n >= STEPS_LIMIT:
            return _integers(column, n)
        numbers = _numbers(code_for(low, high), steps, n - 1)
    return _constant(first, n) if not any(steps) else [STEPS, first, *numbers]


def _keys(column: list[Any], n: int) -> list[Any] | None:
    """Encode texts of which many occur once: numbering them takes longer than it saves."""
    if len(set(column)) * 2 <= n:
        return _texts(column, n)
    packed, sizes, _ = _joined(column)
    return [TEXTS, packed, sizes, None]


def _texts(column: list[Any], n: int) -> list[Any] | None:
    number: defaultdict[Any, int] = defaultdict(count().__next__)
    positions = list(map(number.__getitem__, column))
    distinct = len(number)
    if distinct == 1:
        return _constant(column[0], n)
    packed, sizes, lengths = _joined(list(number))
    if max(lengths) * n > COLUMN_BYTES:
        _check_size(sum(map(lengths.__getitem__, positions)))
    return [TEXTS, packed, sizes, None if distinct == n else _sizes(positions, distinct - 1, n)]


def _joined(texts: list[Any]) -> tuple[bytes, Any, list[int]]:
    """Return texts in one piece, their sizes in encoded form, and their sizes."""
    joined = "".join(texts)
    if joined.isascii():
        packed = joined.encode()
    else:  # msgpack escapes what UTF-8 cannot encode in the same way
        texts = [text.encode("utf-8", "backslashreplace") for text in texts]
        packed = b"".join(texts)
    lengths = list(map(len, texts))
    return packed, _sizes(lengths, max(lengths), len(lengths)), lengths


def _sizes(sizes: list[int], largest: int, n: int) -> Any:
    if largest < 1 << 8:
        packed = bytes(sizes)
        return largest if packed.count(largest) == n else packed
    code, packed = _numbers(code_for(0, largest), sizes, n)
    return largest if sizes.count(largest) == n else [code, packed]


def _intervals(column: Sequence[Any], n: int) -> list[Any] | None:
    lengths, fields = (
        (column.sizes, column.fields) if isinstance(column, Intervals) else _by_field(column)
    )
    total = len(fields[0])
    return [
        INTERVALS,
        _sizes(lengths, max(lengths), n),
        *(
            (_few if total < FEW_PRESENT else encode_column)(kind, values, total) if total else None
            for kind, values in zip(INTERVAL_KINDS, fields, strict=True)
        ),
    ]


def _by_field(column: Sequence[Any]) -> tuple[list[int], Sequence[list[Any]]]:
    """Return the number of intervals of each row, and the four fields of all intervals."""
    flat = list(chain.from_iterable(column))
    if not {*map(type, column), *map(type, flat)} <= {list, tuple}:
        raise TypeError("a value is not a list of intervals")
    return list(map(len, column)), list(map(list, zip(*flat, strict=True))) or [[]] * 4


_ENCODERS: dict[Kind, Callable[[Any, int], list[Any] | None]] = {
    "time": _times,
    "seconds": _floats,
    "bytes": _integers,
    "int": _integers,
    "float": _floats,
    "bool": _booleans,
    "text": _texts,
    "long": _texts,
    "key": _keys,
    "intervals": _intervals,
}
