"""Numbers in the place of keys: what derived tables are grouped and joined by.

A key is a text and the name of a type, both long and there many times. Its number is the same in
all tables of a run as long as it is open, and means nothing beyond that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.store.arrow import nulls

_TYPE = "_type"

#: A number has that of the type in its lower bits; a dictionary of Arrow's has fewer than so many.
_TYPE_BITS = 31
_NO_TYPE = (1 << _TYPE_BITS) - 1

_Ints = npt.NDArray[np.int64]


class KeyNumbers:
    """The numbers of all keys that were met so far."""

    def __init__(self) -> None:
        self._texts = pa.array([], pa.string())
        self._types = pa.array([], pa.string())
        #: Of each text the type that it was first met with, -1 if there was none yet.
        self._first_type: _Ints = np.empty(0, np.int64)
        #: Numbers of texts that were met with another type, too.
        self._others: _Ints = np.empty(0, np.int64)
        self._rows = pa.array([], pa.int64())

    def add_to(self, table: pa.Table) -> pa.Table:
        """Return a table with ``_key`` beside ``key``, and ``_row``, the place of each row."""
        for name in [n for n in table.column_names if f"{n}{_TYPE}" in table.column_names]:
            table = table.append_column(f"_{name}", self._numbers(table, name))
        if len(table) > len(self._rows):
            self._rows = pa.array(np.arange(len(table), dtype=np.int64))
        return table.append_column("_row", self._rows[: len(table)])

    def keys(self) -> pa.Table:
        """Return the number, text and type of each key."""
        texts = np.flatnonzero(self._first_type >= 0)
        first = (texts << _TYPE_BITS) | self._first_type[texts]
        numbers = np.concatenate([first, self._others])
        kinds = pa.array(numbers & _NO_TYPE)
        known = pc.if_else(pc.equal(kinds, _NO_TYPE), pa.scalar(None, pa.int64()), kinds)
        return pa.table(
            {
                "_key": numbers,
                "key": self._texts.take(pa.array(numbers >> _TYPE_BITS)),
                "key_type": self._types.take(known),
            }
        )

    def _numbers(self, table: pa.Table, name: str) -> pa.Array:
        if table[name].null_count == len(table):
            return nulls(pa.int64(), len(table))
        self._texts, text = _places(self._texts, table[name])
        self._types, kind = _places(self._types, table[f"{name}{_TYPE}"])
        kind[kind < 0] = _NO_TYPE
        first = np.full(len(self._texts) + 1, -1, np.int64)
        first[: len(self._first_type)] = self._first_type
        new = np.flatnonzero(first[text] < 0)
        first[text[new]] = kind[new]
        none = text < 0  # was put behind the last text
        others = np.flatnonzero((first[text] != kind) & ~none)
        self._first_type = first[:-1]
        text <<= _TYPE_BITS
        text |= kind
        self._others = np.union1d(self._others, text[others])
        return pa.array(text, mask=none)


def _places(known: pa.Array, column: pa.ChunkedArray) -> tuple[pa.Array, _Ints]:
    """Return all texts that are known now, and the place of each of a column's, -1 for null."""
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return known, np.empty(0, np.int64)
    texts = column.chunk(0).dictionary
    places = pc.index_in(texts, known).cast(pa.int64())
    new = pc.is_null(places)
    behind = pc.add(pc.cumulative_sum(new.cast(pa.int64())), len(known) - 1)
    places = pc.if_else(new, behind, places)
    if pc.any(new).as_py():
        known = pa.concat_arrays([known, texts.filter(new)])
    found = [pc.fill_null(places.take(c.indices), -1).to_numpy() for c in column.chunks]
    return known, np.concatenate(found)
