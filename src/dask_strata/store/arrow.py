"""Rows as the recorder hands them over, as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.schema import KEY_MARK, Column, Kind, Table, split_wire_key
from dask_strata.store.limits import COUNT, TIME_NS

#: Rows that are kept as Python's objects, which take ten times as much, until they are Arrow's.
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

#: Between which values of a kind differences and sums can be computed.
_LIMITS: dict[Kind, tuple[float, float]] = {
    "time": (0, TIME_NS),
    "bytes": (-COUNT, COUNT),
    "seconds": (-float(COUNT), float(COUNT)),
}

#: Fields of an interval that are times.
_INTERVAL_TIMES = (1, 2)


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table; each field carries its meaning and unit."""
    fields = []
    for column in table.all_columns:
        about = {"meaning": column.meaning}
        if column.unit:
            about["unit"] = column.unit
        fields.append(pa.field(column.name, _ARROW[column.kind], metadata=about))
        if column.kind == "key":
            fields.append(
                pa.field(
                    f"{column.name}_type",
                    _TEXT,
                    metadata={
                        "meaning": f"type of the Python object that {column.name} is the text of",
                    },
                )
            )
    return pa.schema(
        fields, metadata={"row": table.row, "layer": table.layer, "level": table.level}
    )


def within_bounds(table: Table, rows: pa.Table) -> tuple[pa.Table, int]:
    """Return a table without times and numbers that nothing can be reckoned with.

    Returns
    -------
    pyarrow.Table
        The rows, with null in the place of such a value.
    int
        How many values that were.
    """
    odd = 0
    for column in table.all_columns:
        if column.kind in _LIMITS and column.name in rows.column_names:
            found, n = _bounded(column.kind, rows[column.name])
            if n:
                index = rows.schema.get_field_index(column.name)
                rows = rows.set_column(index, rows.schema.field(index), found)
                odd += n
    return rows, odd


def _bounded(kind: Kind, array: Any) -> tuple[Any, int]:
    """Return an array with null in the place of values that are beyond all bounds, and how many."""
    if kind not in _LIMITS or not len(array):
        return array, 0
    plain = array.cast(pa.int64()) if kind == "time" else array
    if not _beyond(kind, plain):
        return array, 0
    low, high = _LIMITS[kind]
    good = pc.and_(pc.greater_equal(plain, low), pc.less_equal(plain, high))
    bounded = pc.if_else(good, array, pa.scalar(None, array.type))
    return bounded, bounded.null_count - array.null_count


def whole(rows: pa.Table) -> pa.Table:
    """Return a table whose texts are in one piece: who reads them unpacks a dictionary a piece."""
    for i, field in enumerate(rows.schema):
        rows = rows.set_column(i, field, in_one_piece(rows[i]))
    return rows


def in_one_piece(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column of texts in one piece; any other as it is."""
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        return column.unify_dictionaries().combine_chunks()
    return column


def _beyond(kind: Kind, array: Any) -> bool:
    """Return whether any of some numbers is beyond the limits of its kind."""
    found = pc.min_max(array)
    low, high = found["min"].as_py(), found["max"].as_py()
    if kind == "seconds" and pc.any(pc.is_nan(array)).as_py():
        return True
    return low is not None and not (_LIMITS[kind][0] <= low and high <= _LIMITS[kind][1])


class Rows:
    """Collects the rows of one table and turns them into Arrow in large pieces."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = arrow_schema(table)
        self._names = {c.name for c in table.all_columns}
        #: Of those columns that have a value in any row of this batch.
        self._columns: dict[str, list[Any]] = {}
        self._n = 0
        self._batches: list[pa.RecordBatch] = []
        self.unusable = 0

    def extend(self, n: int, columns: Mapping[str, list[Any]], process: str, seq: int) -> None:
        """Add n rows of one process, given by column; a column that is left out is null."""
        about = {"process": [process] * n, "seq": range(seq, seq + n)}
        for name, given in {**about, **columns}.items():
            if name not in self._names:
                continue  # a later version's
            if name not in self._columns:
                self._columns[name] = [None] * self._n
            self._columns[name].extend(given)
        for name in self._columns.keys() - columns.keys() - about.keys():
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
            return [_spread(part, wire.indices) for part in _split_keys(wire.dictionary)]
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
        array, odd = _bounded(kind, array)
        self.unusable += odd
        return array.dictionary_encode() if target == _TEXT else array

    def _intervals(self, values: list[Any]) -> pa.Array:
        try:
            made = [None if v is None else [_interval(i) for i in v] for v in values]
            array = self._array("intervals", made)
            times = [array.flatten().field(i).cast(pa.int64()) for i in _INTERVAL_TIMES]
            if not any(_beyond("time", time) for time in times):
                return array
        except (TypeError, ValueError, OverflowError):
            pass  # one of them is none; it is looked for
        return self._array("intervals", [self._possible(value) for value in values])

    def _possible(self, value: Any) -> Any:
        """Return intervals, or null if one of them is none or at no time."""
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
        """Return all rows as one table, and let go of them."""
        if self._n:
            self._seal()
        batches, self._batches = self._batches, []
        return whole(pa.Table.from_batches(batches, self._schema))


@cache
def _zeros(n: int) -> pa.Buffer:
    return pa.py_buffer(np.zeros(n, np.uint8))


def nulls(kind: pa.DataType, n: int) -> pa.Array:
    """Return nulls that share their memory with all others."""
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
    """Return the texts and the types of keys: a key has many rows, and is taken apart once."""
    if not pc.any(pc.starts_with(wire, KEY_MARK)).as_py():
        return wire, pa.repeat(pa.scalar("str"), len(wire))
    pairs = [split_wire_key(key) for key in wire.to_pylist()]
    texts, kinds = ([pair[i] for pair in pairs] for i in (0, 1))
    return pa.array(texts, pa.string()), pa.array(kinds, pa.string())


def _spread(values: pa.Array, places: pa.Array) -> pa.DictionaryArray:
    """Return values at places, as a dictionary that has each once."""
    once = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(once.indices.take(places), once.dictionary)


def _interval(item: Any) -> Any:
    action, start, duration, source = item
    return {"action": action, "start": start, "stop": start + duration, "source": source}
