"""Prepare recorded tables for reading: merge processes, order rows, name and count layers."""

from __future__ import annotations

from collections.abc import Callable
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


def count_layers(layers: pa.Table, graph_tasks: pa.Table) -> pa.Table:
    """Return layers with the numbers of their tasks that the scheduler received, where unknown.

    Parameters
    ----------
    layers : pyarrow.Table
        The table ``graph_layers``.
    graph_tasks : pyarrow.Table
        The table ``graph_tasks``. A layer whose submissions differ in the number of its tasks
        keeps null.
    """
    if not layers["n_tasks"].null_count or not len(graph_tasks):
        return layers
    names = graph_tasks.select(["submission", "group"])
    names = pa.table([column.cast(pa.string()) for column in names.columns], names.column_names)
    counts = names.group_by(["submission", "group"]).aggregate([([], "count_all")])
    ranges = counts.group_by("group").aggregate([("count_all", "min"), ("count_all", "max")])
    sure = ranges.filter(pc.equal(ranges["count_all_min"], ranges["count_all_max"]))
    found = pc.index_in(layers["layer"].cast(pa.string()), sure["group"].combine_chunks())
    n_tasks = pc.coalesce(layers["n_tasks"], sure["count_all_min"].combine_chunks().take(found))
    index = layers.schema.get_field_index("n_tasks")
    return layers.set_column(index, layers.schema.field(index), n_tasks)


def mark_rescheduled(executions: pa.Table, transitions: Callable[[], pa.Table]) -> pa.Table:
    """Return executions that raised Dask's `Reschedule` with the outcome rescheduled.

    Early versions recorded them as erred. The exception's name alone is no evidence, as users may
    have a class of this name; the worker's transitions show whether Dask rescheduled the task.

    Parameters
    ----------
    executions : pyarrow.Table
        The table ``executions``.
    transitions : callable
        Returns ``worker``, ``key``, ``key_type`` and ``wanted_state`` of ``worker_transitions``;
        only called if an exception has this name.
    """
    outcome = executions["outcome"].cast(pa.string())
    named = pc.starts_with(executions["exception"].cast(pa.string()), "Reschedule(")
    named = pc.fill_null(pc.and_(pc.equal(outcome, "erred"), named), False)  # noqa: FBT003  pyarrow's signature
    if not pc.any(named).as_py():
        return executions
    moves = transitions()
    moves = moves.filter(pc.equal(moves["wanted_state"].cast(pa.string()), "rescheduled"))
    found = {(row["worker"], row["key"], row["key_type"]) for row in moves.to_pylist()}
    rows = executions.select(["worker", "key", "key_type"]).filter(named).to_pylist()
    asked = [(row["worker"], row["key"], row["key_type"]) in found for row in rows]
    replaced = pc.replace_with_mask(
        outcome.combine_chunks(),
        named.combine_chunks(),
        pa.array(["rescheduled" if yes else "erred" for yes in asked], pa.string()),
    )
    index = executions.schema.get_field_index("outcome")
    field = executions.schema.field(index)
    return executions.set_column(index, field, as_type(pa.chunked_array([replaced]), field.type))
