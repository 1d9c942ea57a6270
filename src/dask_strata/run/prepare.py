"""Prepare recorded tables for reading: one row a process, rows in time order, layers named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run.table_view import as_type


def merge_processes(table: pa.Table) -> pa.Table:
    """Make one row of what a process wrote at its start and at its end."""
    merged: dict[str, dict[str, Any]] = {}
    schema = pa.schema(
        [f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    )
    for row in table.cast(schema).to_pylist():
        known = merged.setdefault(row["process"], row)
        known.update({name: value for name, value in row.items() if value is not None})
    return pa.Table.from_pylist(list(merged.values()), schema=table.schema)


def order_by_time(table: pa.Table) -> pa.Table:
    """Put imported rows in the order of their times, and number them so."""
    times = table["time"].cast(pa.int64()).combine_chunks()
    if len(times) > 1 and pc.any(pc.less(times[1:], times[:-1])).as_py():
        table = table.take(pc.sort_indices(table, [("time", "ascending"), ("seq", "ascending")]))
    index = table.schema.get_field_index("seq")
    return table.set_column(
        index, table.schema.field(index), pa.array(range(len(table)), pa.int64())
    )


def name_layers(tasks: pa.Table, graph_layers: pa.Table) -> pa.Table:
    """Fill in the layer of each task whose group is a layer that a client showed."""
    layers = pc.unique(graph_layers["layer"].cast(pa.string()))
    if not len(layers):
        return tasks
    group = tasks["group"].cast(pa.string())
    layer = pc.if_else(pc.is_in(group, layers), group, pa.scalar(None, pa.string()))
    index = tasks.schema.get_field_index("layer")
    field = tasks.schema.field(index)
    return tasks.set_column(index, field, as_type(layer, field.type))
