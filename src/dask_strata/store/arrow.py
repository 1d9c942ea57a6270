"""Converting rows of segments to Arrow tables with the types of the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.schema import KEY_MARK, Kind, Table, split_wire_key
from dask_strata.store.segments.assemble import ColumnAssembler
from dask_strata.store.segments.collect import ARROW_TYPES, LIMITS, TEXT_TYPE
from dask_strata.store.segments.values import Checked

#: Columns that the reader fills in: no frame has them.
_ORIGIN = ("process", "seq")

#: Rows, and bytes of their texts and odd values, that are collected before conversion to Arrow.
_ROWS_A_BATCH = 1 << 17
_BYTES_A_BATCH = 256 << 20


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table; each field has its meaning and unit as metadata.

    >>> from dask_strata.schema import RECORDED
    >>> arrow_schema(RECORDED["losses"]).field("count").type
    DataType(int64)
    """
    fields = []
    for column in table.all_columns:
        metadata = {"meaning": column.meaning}
        if column.unit:
            metadata["unit"] = column.unit
        fields.append(pa.field(column.name, ARROW_TYPES[column.kind], metadata=metadata))
        if column.kind == "key":
            fields.append(
                pa.field(
                    f"{column.name}_type",
                    TEXT_TYPE,
                    metadata={
                        "meaning": f"type of the Python object behind {column.name}",
                    },
                )
            )
    return pa.schema(
        fields, metadata={"row": table.row, "layer": table.layer, "level": table.level}
    )


def within_bounds(table: Table, rows: pa.Table) -> tuple[pa.Table, int]:
    """Replace times and numbers that are out of range by null.

    Parameters
    ----------
    table : Table
        Definition of the table.
    rows : pyarrow.Table
        Its rows, or some columns of them.

    Returns
    -------
    pyarrow.Table
        The rows.
    int
        Number of values replaced.
    """
    replaced = 0
    for column in table.all_columns:
        if column.kind in LIMITS and column.name in rows.column_names:
            bounded, n = _bounded(column.kind, rows[column.name])
            if n:
                index = rows.schema.get_field_index(column.name)
                rows = rows.set_column(index, rows.schema.field(index), bounded)
                replaced += n
    return rows, replaced


def _bounded(kind: Kind, array: Any) -> tuple[Any, int]:
    """Return an array with values out of range replaced by null, and the number of them."""
    if kind not in LIMITS or not len(array):
        return array, 0
    plain = array.cast(pa.int64()) if kind == "time" else array
    if not _exceeds(kind, plain):
        return array, 0
    low, high = LIMITS[kind]
    in_range = pc.and_(pc.greater_equal(plain, low), pc.less_equal(plain, high))
    bounded = pc.if_else(in_range, array, pa.scalar(None, array.type))
    return bounded, bounded.null_count - array.null_count


def combine_texts(rows: pa.Table) -> pa.Table:
    """Return a table whose text columns have one chunk: a reader decodes a dictionary per chunk."""
    for i, field in enumerate(rows.schema):
        rows = rows.set_column(i, field, combine_chunks(rows[i]))
    return rows


def combine_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a dictionary-encoded column as one chunk; any other column unchanged.

    >>> one, two = pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()
    >>> combine_chunks(pa.chunked_array([one, two])).to_pylist()
    ['a', 'b']
    """
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        return column.unify_dictionaries().combine_chunks()
    return column


def _exceeds(kind: Kind, array: Any) -> bool:
    """Return whether any value of an array is out of the range of its kind."""
    found = pc.min_max(array)
    low, high = found["min"].as_py(), found["max"].as_py()
    if kind == "seconds" and pc.any(pc.is_nan(array)).as_py():
        return True
    return low is not None and not (LIMITS[kind][0] <= low and high <= LIMITS[kind][1])


class Rows:
    """Collect the rows of one table and convert them to Arrow in large batches.

    Parameters
    ----------
    table : Table
        Definition of the table.
    receive : callable, optional
        Is passed each large batch of rows, in their order; the others stay in this object.

    Attributes
    ----------
    passed_on : int
        Number of rows in these batches.
    unusable : int
        Number of values that had the wrong type or were out of range, and are null now.

    Examples
    --------
    >>> from dask_strata.schema import RECORDED
    >>> from dask_strata.store.segments.encode import CONST
    >>> rows = Rows(RECORDED["job"])
    >>> rows.extend(2, {"name": (CONST, "queue")}, "scheduler-1", 0)
    >>> rows.table()["name"].to_pylist()
    ['queue', 'queue']
    """

    def __init__(self, table: Table, receive: Callable[[pa.Table], None] | None = None) -> None:
        self._table = table
        self._receive = receive
        self.passed_on = 0
        self._schema = arrow_schema(table)
        self._kinds = {c.name: c.kind for c in table.all_columns}
        #: The columns that are not null in each row of this batch.
        self._columns: dict[str, ColumnAssembler] = {}
        #: Number of rows, process and first sequence number of each piece of this batch.
        self._origins: list[tuple[int, str, int]] = []
        self._n = self._held = 0
        self._batches: list[pa.RecordBatch] = []
        self.unusable = 0

    def extend(self, n: int, columns: Mapping[str, Checked], process: str, seq: int) -> None:
        """Add rows of one process.

        Parameters
        ----------
        n : int
            Number of rows.
        columns : mapping of str to tuple
            Checked columns by name, see `dask_strata.store.segments.values`; a missing column is
            null in each row.
        process : str
            Id of the process.
        seq : int
            Sequence number of the first row.
        """
        self._origins.append((n, process, seq))
        for name, column in columns.items():
            assembler = self._columns.get(name) or self._assembler(name)
            if assembler is not None:
                self._held += assembler.add(n, column, self._n)
        self._n += n
        if self._n >= _ROWS_A_BATCH or self._held >= _BYTES_A_BATCH:
            self._seal()
            if self._receive is not None:
                self._receive(rows := self.table())
                self.passed_on += len(rows)

    def _assembler(self, name: str) -> ColumnAssembler | None:
        """Return a new assembler of a column; None of those that frames cannot have."""
        if name in _ORIGIN or name not in self._kinds:  # a column of a later version
            return None
        made = self._columns[name] = ColumnAssembler(self._kinds[name])
        return made

    def _seal(self) -> None:
        arrays: list[pa.Array] = []
        origins = dict(zip(_ORIGIN, _origin_arrays(self._origins), strict=True))
        for column in self._table.all_columns:
            if column.name in origins:
                arrays.append(origins[column.name])
                continue
            assembler = self._columns.get(column.name)
            if assembler is None:
                fields = 2 if column.kind == "key" else 1
                arrays.extend([nulls(ARROW_TYPES[column.kind], self._n)] * fields)
                continue
            array = assembler.take(self._n)
            self.unusable += assembler.unusable
            if column.kind == "key":
                arrays.extend(_take(p, array.indices) for p in _split_keys(array.dictionary))
            else:
                arrays.append(array)
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._columns.clear()
        self._origins.clear()
        self._n = self._held = 0

    def table(self) -> pa.Table:
        """Return all rows as one table, and drop them from this object."""
        if self._n:
            self._seal()
        batches, self._batches = self._batches, []
        return combine_texts(pa.Table.from_batches(batches, self._schema))


def _origin_arrays(origins: list[tuple[int, str, int]]) -> tuple[pa.Array, pa.Array]:
    """Return the process and the sequence number of each row, of pieces of consecutive rows."""
    counts = np.array([n for n, _, _ in origins], np.int64)
    firsts = np.array([seq for _, _, seq in origins], np.int64)
    processes = pa.array([process for _, process, _ in origins], pa.string()).dictionary_encode()
    codes = np.repeat(processes.indices.to_numpy(), counts)
    seqs = np.repeat(firsts - (counts.cumsum() - counts), counts) + np.arange(len(codes))
    return pa.DictionaryArray.from_arrays(codes, processes.dictionary), pa.array(seqs)


@cache
def _zeros(n: int) -> pa.Buffer:
    return pa.py_buffer(np.zeros(n, np.uint8))


def nulls(kind: pa.DataType, n: int) -> pa.Array:
    """Return an array of nulls whose buffers are shared between all columns.

    >>> nulls(pa.int64(), 3).to_pylist()
    [None, None, None]
    """
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            nulls(kind.index_type, n), pa.array([], kind.value_type)
        )
    if pa.types.is_nested(kind):
        return pa.nulls(n, kind)
    zeros = _zeros(8 << max(n, _ROWS_A_BATCH).bit_length())
    buffers = [zeros] * (3 if pa.types.is_string(kind) else 2)
    return pa.Array.from_buffers(kind, n, buffers, null_count=n)


def _split_keys(wire: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the texts and the types of distinct keys in their wire form."""
    if not pc.any(pc.starts_with(wire, KEY_MARK)).as_py():
        return wire, pa.repeat(pa.scalar("str"), len(wire))
    pairs = [split_wire_key(key) for key in wire.to_pylist()]
    texts, kinds = ([pair[i] for pair in pairs] for i in (0, 1))
    return pa.array(texts, pa.string()), pa.array(kinds, pa.string())


def _take(values: pa.Array, indices: pa.Array) -> pa.DictionaryArray:
    """Return the values at some indices, dictionary-encoded without duplicates."""
    distinct = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(indices), distinct.dictionary)
