"""Making recorded tables ready to be looked at: one row a process, one clock, layers named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.store.reader import Record
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


def align(record: Record, offsets: dict[str, int]) -> None:
    """Shift the times of each process by its offset, in nanoseconds."""
    if not offsets:
        return
    for name, recorded in record.tables.items():
        table = recorded
        processes = table["process"].cast(pa.string()).combine_chunks()
        if not set(pc.unique(processes).to_pylist()) & offsets.keys():
            continue
        shift = pa.array([offsets.get(p, 0) for p in processes.to_pylist()], pa.int64())
        for i, column in enumerate(table.schema):
            if pa.types.is_timestamp(column.type):
                moved = pc.add(table[i].cast(pa.int64()), shift).cast(column.type)
                table = table.set_column(i, column, moved)
        record.tables[name] = table


def name_layers(tables: dict[str, pa.Table]) -> None:
    """Fill in the layer of each task whose group is a layer that a client showed."""
    layers = pc.unique(tables["graph_layers"]["layer"].cast(pa.string()))
    if not len(layers):
        return
    tasks = tables["graph_tasks"]
    group = tasks["group"].cast(pa.string())
    layer = pc.if_else(pc.is_in(group, layers), group, pa.scalar(None, pa.string()))
    index = tasks.schema.get_field_index("layer")
    field = tasks.schema.field(index)
    tables["graph_tasks"] = tasks.set_column(index, field, as_type(layer, field.type))
