"""Prepare recorded tables for reading: merge processes, order rows by time, name layers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run.table_view import as_type


def merge_processes(table: pa.Table) -> pa.Table:
    """Return one row for each process, merged from the rows of its start and its end.

    Parameters
    ----------
    table : pyarrow.Table
        The table ``processes``; of several values of a column, the last one counts.
    """
    merged: dict[str, dict[str, Any]] = {}
    schema = pa.schema(
        [f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    )
    for row in table.cast(schema).to_pylist():
        process = merged.setdefault(row["process"], row)
        process.update({name: value for name, value in row.items() if value is not None})
    return pa.Table.from_pylist(list(merged.values()), schema=table.schema)


def order_by_time(table: pa.Table) -> pa.Table:
    """Return imported rows in the order of ``time``, and renumber ``seq`` in that order.

    Parameters
    ----------
    table : pyarrow.Table
        A table with the columns ``time`` and ``seq``.
    """
    times = table["time"].cast(pa.int64()).combine_chunks()
    if len(times) > 1 and pc.any(pc.less(times[1:], times[:-1])).as_py():
        table = table.take(pc.sort_indices(table, [("time", "ascending"), ("seq", "ascending")]))
    index = table.schema.get_field_index("seq")
    return table.set_column(
        index, table.schema.field(index), pa.array(range(len(table)), pa.int64())
    )


def name_layers(tasks: pa.Table, graph_layers: pa.Table) -> pa.Table:
    """Return tasks with their group as their layer, where a client recorded a layer of that name.

    Parameters
    ----------
    tasks : pyarrow.Table
        The table ``graph_tasks``.
    graph_layers : pyarrow.Table
        The table ``graph_layers``; without rows, tasks are returned unchanged.
    """
    layers = pc.unique(graph_layers["layer"].cast(pa.string()))
    if not len(layers):
        return tasks
    group = tasks["group"].cast(pa.string())
    layer = pc.if_else(pc.is_in(group, layers), group, pa.scalar(None, pa.string()))
    index = tasks.schema.get_field_index("layer")
    field = tasks.schema.field(index)
    return tasks.set_column(index, field, as_type(layer, field.type))
