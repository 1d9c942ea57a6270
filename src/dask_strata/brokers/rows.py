"""Rows of many messages as one Arrow table of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dask_strata.brokers.json_rows import arrow_column, column_kinds
from dask_strata.schema import Table
from dask_strata.store.arrow import arrow_schema, combine_texts, nulls


def complete_rows(table: Table, contents: Sequence[tuple[str, Any, Any]]) -> pa.Table:
    """Return the contents of messages as one table, in their order.

    Parameters
    ----------
    table : Table
        Definition of the table.
    contents : sequence of tuple
        Process, number of the first row, and the checked row or batch of each message.
    """
    schema = arrow_schema(table)
    pieces: list[pa.Table] = []
    rows: list[tuple[str, int, dict[str, Any]]] = []
    for process, first, content in contents:
        if isinstance(content, pa.RecordBatch):
            pieces += _of_rows(table, schema, rows)
            rows = []
            pieces.append(_of_batch(schema, process, content))
        else:
            rows.append((process, first, content))
    pieces += _of_rows(table, schema, rows)
    return combine_texts(pa.concat_tables(pieces) if pieces else schema.empty_table())


def _of_rows(
    table: Table, schema: pa.Schema, rows: list[tuple[str, int, dict[str, Any]]]
) -> list[pa.Table]:
    if not rows:
        return []
    present = {name for _, _, row in rows for name in row}
    kinds = column_kinds(table)
    origin = {
        "process": pa.array([p for p, _, _ in rows], pa.string()).dictionary_encode(),
        "seq": pa.array([seq for _, seq, _ in rows], pa.int64()),
    }
    columns = []
    for field in schema:
        if field.name in origin and field.name not in kinds:
            columns.append(origin[field.name])
        elif field.name in present:
            values = [row.get(field.name) for _, _, row in rows]
            columns.append(arrow_column(kinds[field.name], values))
        else:
            columns.append(nulls(field.type, len(rows)))
    return [pa.Table.from_arrays(columns, schema=schema)]


def _of_batch(schema: pa.Schema, process: str, batch: pa.RecordBatch) -> pa.Table:
    names = set(batch.schema.names)
    columns = []
    for field in schema:
        if field.name == "process":
            columns.append(pa.array([process] * len(batch), pa.string()).dictionary_encode())
        elif field.name in names:
            columns.append(batch[field.name])
        else:
            columns.append(nulls(field.type, len(batch)))
    return pa.Table.from_arrays(columns, schema=schema)
