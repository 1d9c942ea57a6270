"""Integer ids of keys, by which derived tables are grouped and joined.

A key consists of a text and the name of a type. Both may be long and occur in many rows. The id of
a key is the same in all tables of an open run, and has no meaning beyond that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.store.arrow import nulls

#: Name of the table with the id, text and type of each key.
KEYS_TABLE = "_keys"

_TYPE = "_type"

#: An id consists of the text's index and, in the lower bits, the type's index. An Arrow dictionary
#: has fewer than 2^31 values.
_TYPE_BITS = 31
_NO_TYPE = (1 << _TYPE_BITS) - 1

_Ints = npt.NDArray[np.int64]


class KeyIds:
    """The ids of all keys in the tables that were added.

    Examples
    --------
    >>> texts = pa.chunked_array([pa.array(["a", "b", "a"]).dictionary_encode()])
    >>> types = pa.chunked_array([pa.array(["str"] * 3).dictionary_encode()])
    >>> ids = KeyIds().add_to(pa.table({"key": texts, "key_type": types}))["_key"].to_pylist()
    >>> ids[0] == ids[2] != ids[1]
    True
    """

    def __init__(self) -> None:
        self._texts = pa.array([], pa.string())
        self._types = pa.array([], pa.string())
        #: For each text, the index of the type that it first occurred with; -1 for none.
        self._first_type: _Ints = np.empty(0, np.int64)
        #: Ids of texts with a type that is not their first.
        self._other_ids: _Ints = np.empty(0, np.int64)
        self._rows = pa.array([], pa.int64())

    def add_to(self, table: pa.Table) -> pa.Table:
        """Return a table with ``_key`` in addition to ``key``, and ``_row``, the index of each row.

        Parameters
        ----------
        table : pyarrow.Table
            Columns of keys are dictionary-encoded; each has a column of types, ``…_type``.
        """
        for name in [n for n in table.column_names if f"{n}{_TYPE}" in table.column_names]:
            table = table.append_column(f"_{name}", self._ids(table, name))
        if len(table) > len(self._rows):
            self._rows = pa.array(np.arange(len(table), dtype=np.int64))
        return table.append_column("_row", self._rows[: len(table)])

    def keys(self) -> pa.Table:
        """Return the id (``_key``), text (``key``) and type (``key_type``) of each key."""
        texts = np.flatnonzero(self._first_type >= 0)
        first = (texts << _TYPE_BITS) | self._first_type[texts]
        ids = np.concatenate([first, self._other_ids])
        kinds = pa.array(ids & _NO_TYPE)
        known = pc.if_else(pc.equal(kinds, _NO_TYPE), pa.scalar(None, pa.int64()), kinds)
        return pa.table(
            {
                "_key": ids,
                "key": self._texts.take(pa.array(ids >> _TYPE_BITS)),
                "key_type": self._types.take(known),
            }
        )

    def _ids(self, table: pa.Table, name: str) -> pa.Array:
        if table[name].null_count == len(table):
            return nulls(pa.int64(), len(table))
        self._texts, text = _indices(self._texts, table[name])
        self._types, kind = _indices(self._types, table[f"{name}{_TYPE}"])
        kind[kind < 0] = _NO_TYPE
        first = np.full(len(self._texts) + 1, -1, np.int64)
        first[: len(self._first_type)] = self._first_type
        new = np.flatnonzero(first[text] < 0)
        first[text[new]] = kind[new]
        none = text < 0  # nulls have the last element of `first`, at -1
        others = np.flatnonzero((first[text] != kind) & ~none)
        self._first_type = first[:-1]
        text <<= _TYPE_BITS
        text |= kind
        self._other_ids = np.union1d(self._other_ids, text[others])
        return pa.array(text, mask=none)


def _indices(known: pa.Array, column: pa.ChunkedArray) -> tuple[pa.Array, _Ints]:
    """Return the known texts with those of a column, and the index of each row's; -1 for null."""
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return known, np.empty(0, np.int64)
    texts = column.chunk(0).dictionary
    indices = pc.index_in(texts, known).cast(pa.int64())
    new = pc.is_null(indices)
    appended = pc.add(pc.cumulative_sum(new.cast(pa.int64())), len(known) - 1)
    indices = pc.if_else(new, appended, indices)
    if pc.any(new).as_py():
        known = pa.concat_arrays([known, texts.filter(new)])
    found = [pc.fill_null(indices.take(c.indices), -1).to_numpy() for c in column.chunks]
    return known, np.concatenate(found)
