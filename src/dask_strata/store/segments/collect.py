"""Collecting checked columns of numbers or texts as bytes, and joining them with NumPy."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.schema import Kind
from dask_strata.store.limits import COUNT, TIME_NS
from dask_strata.store.segments.encode import CONST, NUMBERS, STEPS, TEXTS
from dask_strata.store.segments.values import repeated_bytes

Array = npt.NDArray[Any]

_TIME = pa.timestamp("ns", "UTC")

#: Dictionary-encoded texts.
TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())

#: Arrow type of each kind of column.
ARROW_TYPES: dict[Kind, pa.DataType] = {
    "time": _TIME,
    "seconds": pa.float64(),
    "bytes": pa.int64(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": TEXT_TYPE,
    "long": pa.string(),
    "key": TEXT_TYPE,
    "intervals": pa.list_(
        pa.struct(
            [("action", pa.string()), ("start", _TIME), ("stop", _TIME), ("source", pa.string())]
        )
    ),
}

#: Smallest and largest value per kind: sums and differences of two values do not overflow.
LIMITS: dict[Kind, tuple[float, float]] = {
    "time": (0, TIME_NS),
    "bytes": (-COUNT, COUNT),
    "seconds": (-float(COUNT), float(COUNT)),
}

#: First row of a second series: values of columns with nulls, and of short columns, are placed
#: there, one after the other, until the rows of all of them are computed at once.
PRESENT = 1 << 40

#: NumPy's types in the order of `dask_strata.store.segments.encode.CODES`.
_TYPES = ("<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<f8")


class Pieces:
    """Bytes of many columns, with the number of values and the first row of each."""

    def __init__(self) -> None:
        self._bytes: list[bytes | memoryview] = []
        self._starts: list[int] = []
        self._counts: list[int] = []

    def add(self, values: bytes | memoryview, start: int, n: int) -> None:
        """Add the values of `n` rows from a row on."""
        self._bytes.append(values)
        self._starts.append(start)
        self._counts.append(n)

    @property
    def counts(self) -> Array:
        """The number of values of each column."""
        return np.array(self._counts, np.int64)

    def values(self, dtype: str) -> Array:
        """Return all bytes as numbers."""
        return np.frombuffer(b"".join(self._bytes), dtype)

    def rows(self, present: Array) -> Array:
        """Return the row of each value; ``present`` has those of the second series."""
        counts = self.counts
        rows = np.repeat(np.array(self._starts, np.int64) - (counts.cumsum() - counts), counts)
        rows += np.arange(len(rows))
        later = rows >= PRESENT
        if later.any():
            rows[later] = present[rows[later] - PRESENT]
        return rows


class Numbers:
    """Collect integers, floating-point numbers or booleans.

    Parameters
    ----------
    kind : Kind
        Kind of the column.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._dtype = "<f8" if kind in ("seconds", "float") else "<i8"
        self._pack = struct.Struct("<d" if self._dtype == "<f8" else "<q").pack
        self._pieces: dict[tuple[int, int], Pieces] = {}
        self._firsts: dict[int, list[int]] = {}

    def add(self, n: int, column: tuple[Any, ...], start: int) -> int:
        """Add `n` rows from a row on; return the bytes of their texts: numbers have none."""
        if column[0] == CONST:
            self._piece(CONST, 0).add(self._pack(column[1]), start, n)
        elif column[0] == STEPS:
            _, first, code, steps = column
            self._firsts.setdefault(code, []).append(first)
            self._piece(STEPS, code).add(steps, start, n)
        else:
            self._piece(NUMBERS, column[1]).add(column[2], start, n)
        return 0

    def _piece(self, encoding: int, code: int) -> Pieces:
        pieces = self._pieces.get((encoding, code))
        if pieces is None:
            pieces = self._pieces[encoding, code] = Pieces()
        return pieces

    def numbers(self, n: int, present: Array) -> tuple[Array, Array, int]:
        """Return the values of `n` rows, which of them are not null, and how many are out of range.

        Values out of range are null.
        """
        values, valid = np.zeros(n, self._dtype), np.zeros(n, np.bool_)
        for (encoding, code), pieces in self._pieces.items():
            rows = pieces.rows(present)
            if encoding == CONST:
                found = np.repeat(pieces.values(self._dtype), pieces.counts)
            elif encoding == STEPS:
                found = _sums(self._firsts[code], pieces.values(_TYPES[code]), pieces.counts)
            else:
                found = pieces.values(_TYPES[code])
            values[rows] = found
            valid[rows] = True
        if self._kind not in LIMITS or not n:
            return values, valid, 0
        low, high = LIMITS[self._kind]
        if low <= values.min() and values.max() <= high:  # neither is true of NaN
            return values, valid, 0
        in_range = (values >= low) & (values <= high)
        replaced = int(np.count_nonzero(valid & ~in_range))
        values[~in_range] = 0
        return values, valid & in_range, replaced

    def join(self, n: int, present: Array) -> tuple[pa.Array, int]:
        """Return the Arrow array of `n` rows, and the number of values out of range."""
        values, valid, replaced = self.numbers(n, present)
        if self._kind == "bool":
            values = np.packbits(values != 0, bitorder="little")
        return arrow_array(ARROW_TYPES[self._kind], n, values, valid), replaced


def _sums(firsts: list[int], steps: Array, counts: Array) -> Array:
    """Return columns from their first values and all their differences."""
    first_rows = counts.cumsum() - counts
    sums = np.empty(int(counts.sum()), np.int64)
    is_step = np.ones(len(sums), np.bool_)
    is_step[first_rows] = False
    sums[is_step] = steps
    sums[first_rows] = 0
    # The sum over all columns may overflow, which cancels out in the difference.
    sums = sums.cumsum()
    sums += np.repeat(np.array(firsts, np.int64) - sums[first_rows], counts)
    return sums


def arrow_array(kind: pa.DataType, n: int, values: Array, valid: Array) -> pa.Array:
    """Return an Arrow array of the buffer of its values, null where they are not valid."""
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(values)])


class Texts:
    """Collect texts.

    Parameters
    ----------
    kind : Kind
        Kind of the column.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._joined: list[bytes] = []
        self._lengths: list[bytes] = []
        self._positions = Pieces()
        #: Number of texts before those of each piece.
        self._before: list[int] = []
        self._distinct = 0

    def add(self, n: int, column: tuple[Any, ...], start: int) -> int:
        """Add `n` rows from a row on; return the bytes that their texts will take."""
        if column[0] == CONST:
            joined = column[1].encode("utf-8", "backslashreplace")
            lengths, positions = len(joined).to_bytes(4, "little"), bytes(4 * n)
        else:
            _, joined, lengths, positions = column
        self._joined.append(joined)
        self._lengths.append(lengths)
        self._positions.add(positions, start, n)
        self._before.append(self._distinct)
        self._distinct += len(lengths) // 4
        return repeated_bytes(lengths, positions) if self._kind == "long" else len(joined)

    def join(self, n: int, present: Array) -> tuple[pa.Array, int]:
        """Return the Arrow array of `n` rows, and 0: each text is valid."""
        offsets = np.zeros(self._distinct + 1, np.int32)
        np.frombuffer(b"".join(self._lengths), "<u4").cumsum(out=offsets[1:], dtype=np.int32)
        texts = pa.StringArray.from_buffers(
            self._distinct, pa.py_buffer(offsets), pa.py_buffer(b"".join(self._joined))
        )
        positions = self._positions.values("<u4").astype(np.int32)
        positions += np.repeat(np.array(self._before, np.int32), self._positions.counts)
        if self._kind != "long":
            encoded = texts.dictionary_encode()
            texts = encoded.dictionary
            positions = encoded.indices.to_numpy()[positions]
        values, valid = np.zeros(n, np.int32), np.zeros(n, np.bool_)
        rows = self._positions.rows(present)
        values[rows] = positions
        valid[rows] = True
        indices = arrow_array(pa.int32(), n, values, valid)
        if self._kind == "long":
            return texts.take(indices), 0
        # The dictionary has the order of the rows: short columns were collected after the others.
        ordered = indices.dictionary_encode()
        return pa.DictionaryArray.from_arrays(ordered.indices, texts.take(ordered.dictionary)), 0


def is_typed(kind: Kind, column: tuple[Any, ...]) -> bool:
    """Return whether a checked column has the bytes, or the one value, of its kind.

    >>> is_typed("int", (CONST, 7)), is_typed("int", (CONST, "x"))
    (True, False)
    """
    encoding = column[0]
    if kind in ("text", "key", "long"):
        return encoding == TEXTS or (encoding == CONST and type(column[1]) is str)
    if kind in ("seconds", "float"):
        return _is_one_of(column, float, _FLOAT_CODES)
    if kind == "bool":
        return _is_one_of(column, bool, _BYTE_CODES)
    if encoding == CONST:
        return type(column[1]) is int and -(1 << 63) <= column[1] < 1 << 63
    return encoding == STEPS or _is_one_of(column, int, _INTEGER_CODES)


def _is_one_of(column: tuple[Any, ...], kind: type, codes: tuple[int, ...]) -> bool:
    if column[0] == CONST:
        return type(column[1]) is kind
    return bool(column[0] == NUMBERS and column[1] in codes)


_INTEGER_CODES, _BYTE_CODES, _FLOAT_CODES = tuple(range(7)), (4,), (7,)
