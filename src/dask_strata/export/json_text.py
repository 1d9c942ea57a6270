"""JSON of many rows: DuckDB makes the text of each row, and its bytes are written as they are.

A million rows then need no Python objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Array, Ints


def member(name: str, value: str) -> str:
    """Return SQL for a member of an object with a text, after a comma; empty for null.

    >>> print(member("key", "t.key"))
    coalesce(',"key":' || to_json(t.key), '')
    """
    return f"coalesce(',{_quoted(name)}:' || to_json({value}), '')"


def number_member(name: str, value: str) -> str:
    """Return SQL for a member with a number; empty for null, infinity and NaN, which JSON lacks."""
    return (
        f"coalesce(case when isfinite({value}::double) then ',{_quoted(name)}:' || {value} end, '')"
    )


def _quoted(name: str) -> str:
    return json.dumps(name).replace("'", "''")


def dumps(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def joined(*parts: pa.Array | str) -> pa.Array:
    """Return the texts of several columns and constants, joined row by row."""
    return pc.binary_join_element_wise(*parts, "")


def text_bytes(column: pa.Array, first: int = 0, last: int | None = None) -> memoryview:
    """Return the bytes of the texts of some rows, without a copy; the column has no nulls.

    >>> bytes(text_bytes(pa.array(["a", "b", "cd"]), 1))
    b'bcd'
    """
    last = len(column) if last is None else last
    if first >= last:
        return memoryview(b"")
    _, offsets, data = column.buffers()
    kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
    at = np.frombuffer(offsets, kind, len(column) + 1, column.offset * np.dtype(kind).itemsize)
    return memoryview(data)[int(at[first]) : int(at[last])] if data else memoryview(b"")


class Items:
    """Elements of a JSON array, which are written in parts, one on each line.

    Parameters
    ----------
    file : binary file
        The open file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        #: Number of elements so far.
        self.n = 0

    def write(self, column: pa.Array) -> None:
        """Write the texts of a column, an element each."""
        if not len(column):
            return
        self._file.write(b",\n" if self.n else b"\n")
        self.n += len(column)
        self._file.write(text_bytes(joined(column.slice(0, len(column) - 1), ",\n")))
        self._file.write(text_bytes(column, len(column) - 1))


class Lists:
    """Texts in groups: those of one group, in the order of their numbers, are joined by commas.

    Parameters
    ----------
    group : array of int
        Number of the group of each text.
    text : array of int
        Number of each text.
    texts : callable
        Returns the texts of some numbers.
    n : int
        Number of groups.
    """

    def __init__(self, group: Ints, text: Ints, texts: Callable[[Ints], pa.Array], n: int) -> None:
        self._texts = texts
        self._text = (np.sort(group.astype(np.int64) << 32 | text) & 0xFFFFFFFF).astype(np.int32)
        self._first = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(group, minlength=n), out=self._first[1:])

    def counts(self, groups: Ints) -> Array:
        """Return the number of texts of each of some groups."""
        counts: Array = self._first[groups + 1] - self._first[groups]
        return counts

    def of(self, groups: Ints, most: int | None = None) -> pa.Array:
        """Return the joined texts of some groups, at most some of each: its first ones."""
        counts = self.counts(groups)
        if most is not None:
            counts = np.minimum(counts, most)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        rows = np.arange(total) + np.repeat(self._first[groups] - (ends - counts), counts)
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        found = pa.ListArray.from_arrays(offsets, self._texts(self._text[rows]))
        return pc.binary_join(found, ",")
