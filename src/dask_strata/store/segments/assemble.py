"""Joining the checked columns of many frames into one Arrow array, without an object a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dask_strata.schema import Kind
from dask_strata.store.limits import TIME_NS, Budget
from dask_strata.store.segments.collect import (
    ARROW_TYPES,
    PRESENT,
    Array,
    Numbers,
    Pieces,
    Texts,
    arrow_array,
)
from dask_strata.store.segments.encode import INTERVAL_KINDS, INTERVALS, PLAIN, SOME, typed_column
from dask_strata.store.segments.usable import usable_values
from dask_strata.store.segments.values import Checked, check_column, values_of

#: Columns of values that take fewer bytes are encoded together.
_SHORT_BYTES = 1 << 16

#: Approximate memory of a value in a list.
_OBJECT_BYTES = 64

#: The texts of values of odd types were counted when they were decoded.
_COUNTED = 1 << 62


class ColumnAssembler:
    """Collect the values of a column, and join them.

    Parameters
    ----------
    kind : Kind
        Kind of the column.

    Attributes
    ----------
    unusable : int
        Number of values that had the wrong type or were out of range, and are null.

    Examples
    --------
    >>> from dask_strata.store.segments.encode import CONST
    >>> column = ColumnAssembler("int")
    >>> column.add(2, (CONST, 7), 1)
    0
    >>> column.take(4).to_pylist()
    [None, 7, 7, None]
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.unusable = 0
        self._begin()

    def _begin(self) -> None:
        self._collected: Numbers | Texts | _Intervals
        if self._kind == "intervals":
            self._collected = _Intervals()
        elif self._kind in ("text", "key", "long"):
            self._collected = Texts(self._kind)
        else:
            self._collected = Numbers(self._kind)
        #: Start, number of rows and bits of each part with nulls.
        self._some: list[tuple[int, int, bytes]] = []
        self._present = 0
        #: Values of short columns, with the start and the number of rows of each column.
        self._values: list[Any] = []
        self._places = Pieces()
        self._empty = True

    def add(self, n: int, column: Checked, start: int) -> int:
        """Add the values of some rows, in ascending order of rows.

        Returns the memory that their texts and values of odd types will take, in bytes.

        Parameters
        ----------
        n : int
            Number of rows.
        column : tuple or None
            Their values, as returned by `check_column`.
        start : int
            The first row.
        """
        if column is None:
            return 0
        self._empty = False
        if self._collected.takes(column):
            return self._collected.add(n, column, start)
        inner = column[3] if column[0] == SOME else column
        size = self._size(inner[1]) if inner[0] == PLAIN else _SHORT_BYTES
        typed = column if size < _SHORT_BYTES else self._typed(n, column)
        if typed is None:
            return 0
        if typed[0] == SOME:
            _, bits, present, typed = typed
            self._some.append((start, n, bits))
            start, n = PRESENT + self._present, present
            self._present += present
        if size < _SHORT_BYTES:
            self._values += inner[1]
            self._places.add(b"", start, n)
            return size
        return self._collected.add(n, typed, start)

    def _size(self, values: list[Any]) -> int:
        """Return the approximate memory of values that are encoded later, with others."""
        if self._kind == "intervals":
            return _SHORT_BYTES  # now, as the fields of all intervals are in the order of the rows
        size = _OBJECT_BYTES * len(values)
        if self._kind in ("text", "key", "long"):
            size += sum([len(value) for value in values if isinstance(value, (str, bytes))])
        return size

    def _typed(self, n: int, column: tuple[Any, ...]) -> Checked:
        """Return a column as typed bytes; values of odd types are null and counted."""
        inner = column[3] if column[0] == SOME else column
        if self._collected.takes(inner):
            return column
        if column[0] == PLAIN and isinstance(self._collected, Numbers):
            packed = self._collected.packed(column[1])
            if packed is not None:
                return packed
        values, unusable = usable_values(self._kind, values_of(column, n))
        self.unusable += unusable
        return check_column(typed_column(self._kind, values, n), n, Budget(_COUNTED))

    def take(self, n: int) -> pa.Array:
        """Return the column of the first `n` rows, and drop them; rows without a value are null."""
        if self._empty:
            return pa.nulls(n, ARROW_TYPES[self._kind])
        array, replaced = self._collected.join(n, self._present_rows())
        self.unusable += replaced
        self._begin()
        return array

    def numbers(self, n: int) -> tuple[Array, Array]:
        """Return the first `n` numbers, and which of them are not null."""
        if not isinstance(self._collected, Numbers):
            raise TypeError(f"a column of {self._kind} has no numbers")
        values, valid, _ = self._collected.numbers(n, self._present_rows())
        return values, valid

    def _present_rows(self) -> Array:
        """Return the rows of the series from `PRESENT` on."""
        rows = _set_rows(self._some)
        if not self._values:
            return rows
        # Now encode the values of all short columns together.
        places = self._places.rows(rows)
        column = self._typed(len(places), (PLAIN, self._values))
        if column is None:
            return rows
        if column[0] == SOME:
            places = places[_set_rows([(0, len(places), column[1])])]
            column = column[3]
        self._collected.add(len(places), column, PRESENT + len(rows))
        self._values, self._places = [], Pieces()
        return np.concatenate([rows, places])


def _set_rows(parts: list[tuple[int, int, bytes]]) -> Array:
    """Return the rows whose bits are set, of parts with a first row, a number of rows and bits."""
    if not parts:
        return np.zeros(0, np.int64)
    bits = np.frombuffer(b"".join(bits for _, _, bits in parts), np.uint8)
    sizes = np.array([8 * len(bits) for _, _, bits in parts], np.int64)
    starts = np.array([start for start, _, _ in parts], np.int64)
    shift = np.repeat(starts - (sizes.cumsum() - sizes), sizes)
    found = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    return found + shift[found]


class _Intervals:
    """Collect lists of intervals: the number of intervals of each row, and the four fields."""

    def __init__(self) -> None:
        self._counts = Pieces()
        self._fields = [ColumnAssembler(kind) for kind in INTERVAL_KINDS]
        self._total = 0

    @staticmethod
    def takes(column: tuple[Any, ...]) -> bool:
        """Return whether a checked column has intervals."""
        return bool(column[0] == INTERVALS)

    def add(self, n: int, column: tuple[Any, ...], start: int) -> int:
        """Add `n` rows from a row on; return the bytes that their texts will take."""
        _, counts, total, *fields = column
        self._counts.add(counts, start, n)
        held = 0
        for assembler, field in zip(self._fields, fields, strict=True):
            held += assembler.add(total, field, self._total)
        self._total += total
        return held

    def join(self, n: int, present: Array) -> tuple[pa.Array, int]:
        """Return the Arrow array of `n` rows, and the number of rows with an unusable interval."""
        actions, starts, durations, sources = self._fields
        counts, valid = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        rows = self._counts.rows(present)
        counts[rows] = self._counts.values("<u4")
        valid[rows] = True
        start, has_start = starts.numbers(self._total)
        duration, has_duration = durations.numbers(self._total)
        usable = has_start & has_duration & (duration > -TIME_NS) & (duration < TIME_NS)
        stop = start + np.where(usable, duration, 0)
        usable &= (start < TIME_NS) & (stop >= 0) & (stop < TIME_NS)
        texts = [actions.take(self._total), sources.take(self._total)]
        unusable = 0
        if not usable.all():
            of_row = np.repeat(np.arange(n), counts)
            wrong = np.unique(of_row[~usable])
            unusable = len(wrong)
            valid[wrong] = False
            counts[wrong] = 0
            kept = valid[of_row]
            start, stop = start[kept], stop[kept]
            texts = [text.filter(pa.array(kept)) for text in texts]
        unusable += actions.unusable + sources.unusable
        offsets = np.zeros(n + 1, np.int32)
        counts.cumsum(out=offsets[1:], dtype=np.int32)
        kind = ARROW_TYPES["intervals"]
        every = np.ones(len(start), np.bool_)
        times = [
            arrow_array(kind.value_type["start"].type, len(t), t, every) for t in (start, stop)
        ]
        fields = [texts[0], *times, texts[1]]
        flat = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return (
            pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(offsets)], children=[flat]),
            unusable,
        )
