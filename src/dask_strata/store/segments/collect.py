"""Collecting checked columns of numbers or texts as bytes, and joining them with NumPy."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.schema import Kind
from dask_strata.store.limits import COUNT, TIME_NS
from dask_strata.store.segments.encode import BYTE, CONST, FLOAT, INT64, NUMBERS, STEPS, TEXTS
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
        self._parts: list[tuple[bytes | memoryview, int, int]] = []

    def add(self, values: bytes | memoryview, start: int, n: int) -> None:
        """Add the values of `n` rows from a row on."""
        self._parts.append((values, start, n))

    @property
    def counts(self) -> Array:
        """The number of values of each column."""
        return np.array([n for _, _, n in self._parts], np.int64)

    def values(self, dtype: str) -> Array:
        """Return all bytes as numbers."""
        return np.frombuffer(b"".join([values for values, _, _ in self._parts]), dtype)

    def fills(self, n: int) -> bool:
        """Return whether the values are those of `n` rows, each once and in their order."""
        if not self._parts or self._parts[-1][1] >= PRESENT:
            return False
        return sum([count for _, _, count in self._parts]) == n

    def rows(self, present: Array) -> Array:
        """Return the row of each value; ``present`` has those of the second series."""
        counts = self.counts
        starts = np.array([start for _, start, _ in self._parts], np.int64)
        rows = np.repeat(starts - (counts.cumsum() - counts), counts)
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
        self._type, self._codes = _TYPED.get(kind, (int, _INTEGER_CODES))
        self._pieces: defaultdict[tuple[int, int], Pieces] = defaultdict(Pieces)
        self._firsts: dict[int, list[int]] = {}

    def takes(self, column: tuple[Any, ...]) -> bool:
        """Return whether a checked column has the bytes, or the one value, of this kind.

        >>> Numbers("int").takes((CONST, 7)), Numbers("int").takes((CONST, "x"))
        (True, False)
        """
        encoding = column[0]
        if encoding == NUMBERS:
            return column[1] in self._codes
        if encoding == CONST:
            value: Any = column[1]
            fits = self._type is not int or (type(value) is int and -(1 << 63) <= value < 1 << 63)
            return fits and type(value) is self._type
        return bool(encoding == STEPS) and self._type is int

    def packed(self, values: list[Any]) -> tuple[Any, ...] | None:
        r"""Return values as a checked column; None if one is null, of another type or too large.

        >>> Numbers("int").packed([7, 8])[1:], Numbers("int").packed([7, None])
        ((3, b'\x07\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00'), None)
        """
        if self._type is bool or set(map(type, values)) != {self._type}:
            return None
        code = FLOAT if self._type is float else INT64
        try:
            return NUMBERS, code, np.array(values, self._dtype).tobytes()
        except OverflowError:
            return None

    def add(self, n: int, column: tuple[Any, ...], start: int) -> int:
        """Add `n` rows from a row on; return the bytes of their texts: numbers have none."""
        if column[0] == CONST:
            self._pieces[CONST, 0].add(self._pack(column[1]), start, n)
        elif column[0] == STEPS:
            _, first, code, steps = column
            self._firsts.setdefault(code, []).append(first)
            self._pieces[STEPS, code].add(steps, start, n)
        else:
            self._pieces[NUMBERS, column[1]].add(column[2], start, n)
        return 0

    def numbers(self, n: int, present: Array) -> tuple[Array, Array, int]:
        """Return the values of `n` rows, which of them are not null, and how many are out of range.

        Values out of range are null.
        """
        values, valid = np.zeros(n, self._dtype), np.zeros(n, np.bool_)
        for (encoding, code), pieces in self._pieces.items():
            if encoding == CONST:
                found = np.repeat(pieces.values(self._dtype), pieces.counts)
            elif encoding == STEPS:
                found = _sums(self._firsts[code], pieces.values(_TYPES[code]), pieces.counts)
            else:
                found = pieces.values(_TYPES[code])
            rows = slice(None) if pieces.fills(n) else pieces.rows(present)
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

    @staticmethod
    def takes(column: tuple[Any, ...]) -> bool:
        """Return whether a checked column has the bytes, or the one value, of this kind.

        >>> Texts.takes((CONST, "x")), Texts.takes((CONST, 7))
        (True, False)
        """
        return bool(column[0] == TEXTS) or (column[0] == CONST and type(column[1]) is str)

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
        return repeated_bytes(lengths, positions) if self._kind == "long" else len(joined)

    def join(self, n: int, present: Array) -> tuple[pa.Array, int]:
        """Return the Arrow array of `n` rows, and 0: each text is valid."""
        distinct = np.array(list(map(len, self._lengths)), np.int64) // 4
        offsets = np.zeros(int(distinct.sum()) + 1, np.int32)
        np.frombuffer(b"".join(self._lengths), "<u4").cumsum(out=offsets[1:], dtype=np.int32)
        texts = pa.StringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(b"".join(self._joined))
        )
        positions = self._positions.values("<u4").astype(np.int32)
        before = (distinct.cumsum() - distinct).astype(np.int32)
        positions += np.repeat(before, self._positions.counts)
        if self._kind != "long":
            encoded = texts.dictionary_encode()
            texts = encoded.dictionary
            positions = encoded.indices.to_numpy()[positions]
            if self._positions.fills(n):
                return pa.DictionaryArray.from_arrays(pa.array(positions), texts), 0
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


_INTEGER_CODES = frozenset(range(7))

#: Type and codes of the numbers of a kind that are not integers.
_TYPED: dict[Kind, tuple[type, frozenset[int]]] = {
    "seconds": (float, frozenset({FLOAT})),
    "float": (float, frozenset({FLOAT})),
    "bool": (bool, frozenset({BYTE})),
}
