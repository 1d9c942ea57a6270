"""Converting rows of segments to Arrow tables with the types of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.schema import KEY_MARK, Column, Kind, Table, split_wire_key
from dask_strata.store.limits import COUNT, TIME_NS

#: Rows collected as Python objects, which take ten times the memory, before conversion to Arrow.
_ROWS_A_BATCH = 20_000

_TIME = pa.timestamp("ns", "UTC")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_INTERVALS = pa.list_(
    pa.struct([("action", pa.string()), ("start", _TIME), ("stop", _TIME), ("source", pa.string())])
)
_ARROW: dict[Kind, pa.DataType] = {
    "time": _TIME,
    "seconds": pa.float64(),
    "bytes": pa.int64(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": _TEXT,
    "long": pa.string(),
    "key": _TEXT,
    "intervals": _INTERVALS,
}

#: Smallest and largest value per kind: sums and differences of two values do not overflow.
_LIMITS: dict[Kind, tuple[float, float]] = {
    "time": (0, TIME_NS),
    "bytes": (-COUNT, COUNT),
    "seconds": (-float(COUNT), float(COUNT)),
}

#: Fields of an interval that are times.
_INTERVAL_TIMES = (1, 2)


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
        fields.append(pa.field(column.name, _ARROW[column.kind], metadata=metadata))
        if column.kind == "key":
            fields.append(
                pa.field(
                    f"{column.name}_type",
                    _TEXT,
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
        if column.kind in _LIMITS and column.name in rows.column_names:
            bounded, n = _bounded(column.kind, rows[column.name])
            if n:
                index = rows.schema.get_field_index(column.name)
                rows = rows.set_column(index, rows.schema.field(index), bounded)
                replaced += n
    return rows, replaced


def _bounded(kind: Kind, array: Any) -> tuple[Any, int]:
    """Return an array with values out of range replaced by null, and the number of them."""
    if kind not in _LIMITS or not len(array):
        return array, 0
    plain = array.cast(pa.int64()) if kind == "time" else array
    if not _exceeds(kind, plain):
        return array, 0
    low, high = _LIMITS[kind]
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
    return low is not None and not (_LIMITS[kind][0] <= low and high <= _LIMITS[kind][1])


class Rows:
    """Collect the rows of one table and convert them to Arrow in large batches.

    Parameters
    ----------
    table : Table
        Definition of the table.

    Attributes
    ----------
    unusable : int
        Number of values that had the wrong type or were out of range, and are null now.

    Examples
    --------
    >>> from dask_strata.schema import RECORDED
    >>> rows = Rows(RECORDED["job"])
    >>> rows.extend(2, {"name": ["queue", "nodes"]}, "scheduler-1", 0)
    >>> rows.table()["name"].to_pylist()
    ['queue', 'nodes']
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = arrow_schema(table)
        self._names = {c.name for c in table.all_columns}
        #: Values of the columns that are not null in each row of this batch.
        self._columns: dict[str, list[Any]] = {}
        self._n = 0
        self._batches: list[pa.RecordBatch] = []
        self.unusable = 0

    def extend(self, n: int, columns: Mapping[str, list[Any]], process: str, seq: int) -> None:
        """Add rows of one process.

        Parameters
        ----------
        n : int
            Number of rows.
        columns : mapping of str to list
            Values by column; a missing column is null in each row.
        process : str
            Id of the process.
        seq : int
            Sequence number of the first row.
        """
        common = {"process": [process] * n, "seq": range(seq, seq + n)}
        for name, values in {**common, **columns}.items():
            if name not in self._names:
                continue  # a column of a later version
            if name not in self._columns:
                self._columns[name] = [None] * self._n
            self._columns[name].extend(values)
        for name in self._columns.keys() - columns.keys() - common.keys():
            self._columns[name].extend([None] * n)
        self._n += n
        if self._n >= _ROWS_A_BATCH:
            self._seal()

    def _seal(self) -> None:
        arrays: list[pa.Array] = []
        for column in self._table.all_columns:
            values = self._columns.get(column.name)
            if values is None:
                fields = 2 if column.kind == "key" else 1
                arrays.extend([nulls(_ARROW[column.kind], self._n)] * fields)
            else:
                arrays.extend(self._arrays(column, values))
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._columns.clear()
        self._n = 0

    def _arrays(self, column: Column, values: list[Any]) -> list[pa.Array]:
        if column.kind == "key":
            wire = self._array("text", values)
            return [_take(part, wire.indices) for part in _split_keys(wire.dictionary)]
        if column.kind == "intervals":
            return [self._intervals(values)]
        return [self._array(column.kind, values)]

    def _array(self, kind: Kind, values: list[Any]) -> pa.Array:
        target = _ARROW[kind]
        plain = pa.string() if target == _TEXT else target
        try:
            array = pa.array(values, plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            array = pa.array([self._usable(v, plain) for v in values], plain)
        array, replaced = _bounded(kind, array)
        self.unusable += replaced
        return array.dictionary_encode() if target == _TEXT else array

    def _intervals(self, values: list[Any]) -> pa.Array:
        try:
            made = [None if v is None else [_interval(i) for i in v] for v in values]
            array = self._array("intervals", made)
            times = [array.flatten().field(i).cast(pa.int64()) for i in _INTERVAL_TIMES]
            if not any(_exceeds("time", time) for time in times):
                return array
        except (TypeError, ValueError, OverflowError):
            pass  # one of them is not an interval: examine each value below
        return self._array("intervals", [self._valid_intervals(value) for value in values])

    def _valid_intervals(self, value: Any) -> Any:
        """Return the intervals of a row, or null if one of them is malformed or out of range."""
        if value is None:
            return None
        try:
            made = [_interval(item) for item in value]
            if all(0 <= i["start"] < TIME_NS and 0 <= i["stop"] < TIME_NS for i in made):
                return made
        except (TypeError, ValueError):
            pass
        self.unusable += 1
        return None

    def _usable(self, value: Any, plain: pa.DataType) -> Any:
        try:
            pa.array([value], plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            self.unusable += 1
            return None
        return value

    def table(self) -> pa.Table:
        """Return all rows as one table, and drop them from this object."""
        if self._n:
            self._seal()
        batches, self._batches = self._batches, []
        return combine_texts(pa.Table.from_batches(batches, self._schema))


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


def _interval(item: Any) -> Any:
    action, start, duration, source = item
    return {"action": action, "start": start, "stop": start + duration, "source": source}
