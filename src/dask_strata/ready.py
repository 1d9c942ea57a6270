"""Making recorded tables ready to be looked at: one row a process, one clock, layers named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.tables import as_type


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


def align(table: pa.Table, offsets: dict[str, int], *, imported: bool) -> pa.Table:
    """Shift the times of each process by its offset, in nanoseconds.

    An imported worker has shifted all but `time` already, by what it took for its offset then.
    """
    moving = [
        i
        for i, column in enumerate(table.schema)
        if pa.types.is_timestamp(column.type) and (column.name == "time" or not imported)
    ]
    if not moving or not offsets:
        return table
    processes = table["process"].cast(pa.string()).combine_chunks()
    if not set(pc.unique(processes).to_pylist()) & offsets.keys():
        return table
    names = pa.array(offsets, pa.string())
    shifts = pa.array(offsets.values(), pa.int64())
    shift = pc.fill_null(shifts.take(pc.index_in(processes, names)), 0)
    for i in moving:
        column = table.schema.field(i)
        moved = pc.add(table[i].cast(pa.int64()), shift).cast(column.type)
        table = table.set_column(i, column, moved)
    return table


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
