"""Rows as the recorder hands them over, as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dask_strata.schema import Column, Kind, Table, split_wire_key

_ROWS_A_BATCH = 100_000

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


class Rows:
    """Collects the rows of one table and turns them into Arrow in large pieces."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = arrow_schema(table)
        self._columns: dict[str, list[Any]] = {c.name: [] for c in table.all_columns}
        self._n = 0
        self._batches: list[pa.RecordBatch] = []
        self.unusable = 0

    def extend(self, n: int, columns: Mapping[str, list[Any]], process: str, seq: int) -> None:
        """Add n rows of one process, given by column; a column that is left out is null."""
        for name, values in self._columns.items():
            given = columns.get(name)
            if given is not None:
                values.extend(given)
            elif name == "process":
                values.extend([process] * n)
            elif name == "seq":
                values.extend(range(seq, seq + n))
            else:
                values.extend([None] * n)
        self._n += n
        if self._n >= _ROWS_A_BATCH:
            self._seal()

    def _seal(self) -> None:
        arrays: list[pa.Array] = []
        for column in self._table.all_columns:
            values = self._columns[column.name]
            arrays.extend(self._arrays(column, values))
            self._columns[column.name] = []
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._n = 0

    def _arrays(self, column: Column, values: list[Any]) -> list[pa.Array]:
        if column.kind == "key":
            pairs = [(None, None) if v is None else _split(v) for v in values]
            texts, kinds = zip(*pairs, strict=True) if pairs else ((), ())
            return [self._array("text", list(texts)), self._array("text", list(kinds))]
        if column.kind == "intervals":
            values = [None if v is None else [_interval(i) for i in v] for v in values]
        return [self._array(column.kind, values)]

    def _array(self, kind: Kind, values: list[Any]) -> pa.Array:
        target = _ARROW[kind]
        plain = pa.string() if target == _TEXT else target
        try:
            array = pa.array(values, plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            array = pa.array([self._usable(v, plain) for v in values], plain)
        return array.dictionary_encode() if target == _TEXT else array

    def _usable(self, value: Any, plain: pa.DataType) -> Any:
        try:
            pa.array([value], plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            self.unusable += 1
            return None
        return value

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        if self._n:
            self._seal()
        return pa.Table.from_batches(self._batches, self._schema).unify_dictionaries()


def _split(wire: Any) -> tuple[str | None, str | None]:
    return split_wire_key(wire) if isinstance(wire, str) else (None, None)


def _interval(item: Any) -> Any:
    action, start, duration, source = item
    return {"action": action, "start": start, "stop": start + duration, "source": source}
