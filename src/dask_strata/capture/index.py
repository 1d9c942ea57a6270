"""Sort the events of a run by task and by time, once: ten bytes per event.

The index contains row numbers only. The events stay in the run's Arrow tables, and objects are
created a page at a time when they are accessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run import Run
from dask_strata.run.duckdb_session import computing, connect, fetch, register
from dask_strata.store.interruptible import interruptible

SCHEDULER, WORKER, TRANSFER = range(3)

_TABLES = (
    "scheduler_transitions",
    "worker_transitions",
    "transfer_ends",
    "transfer_end_keys",
    "processes",
)
_NS = pa.int64()
_INTERVALS = pa.list_(
    pa.struct([("action", pa.string()), ("start", _NS), ("stop", _NS), ("source", pa.string())])
)

#: All events of all tasks, with the row of their table.
_EVENTS = """
    create temp table events as
    select key, key_type, time, 0::tinyint as kind, row from scheduler_transitions
    where key is not null
    union all
    select key, key_type, time, 1::tinyint as kind, row from worker_transitions
    where key is not null
    union all
    select distinct k.key, k.key_type, coalesce(e.time, e.stop) as time, 2::tinyint as kind, e.row
    from transfer_ends e join transfer_end_keys k using (process, number) where k.key is not null
"""

#: All tasks, numbered in order of first appearance.
_TASKS = """
    create temp table tasks as
    select key, key_type, count(*) as n, (row_number() over (
        order by min(time) nulls last, min(kind * 4294967296 + row), key, key_type) - 1
    )::integer as task
    from events group by key, key_type
"""

_BY_TASK = """
    select kind, row::integer as row from events join tasks using (key, key_type)
    order by task, time nulls last, kind, row
"""

#: All events once, including transfers without a key.
_BY_TIME = """
    select kind, row::integer as row from (
        select time, 0::tinyint as kind, row from scheduler_transitions union all
        select time, 1::tinyint as kind, row from worker_transitions union all
        select coalesce(time, stop) as time, 2::tinyint as kind, row from transfer_ends)
    order by time nulls last, kind, row
"""

#: One interval per transition: the first computation, or else the first interval of any kind.
_INTERVAL = """
    select i.start as begins, i.stop as ends, i.action as action from (
        select row, coalesce([x for x in startstops if x.action = 'compute'][1],
                             startstops[1]) as i
        from scheduler_transitions) order by row
"""

#: Recorded runs lack middle, duration and bandwidth of transfers, so they are derived here.
_TRANSFER = """
    with ends as (
        select row, coalesce(time, stop) as t_event, start, stop,
               coalesce(middle, start + (stop - start) // 2) as middle,
               coalesce(duration_seconds, (stop - start) / 1e9) as duration,
               total_bytes, bandwidth
        from transfer_ends
    ), contents as (
        select e.row, list(k.key order by k.row) as keys, list(k.nbytes order by k.row) as sizes
        from transfer_ends e join transfer_end_keys k using (process, number) group by e.row
    )
    select t_event, start, stop, middle, duration,
           coalesce(bandwidth, case when duration > 0 then total_bytes / duration end) as bandwidth,
           keys, sizes
    from ends left join contents using (row) order by row
"""


class Rows(NamedTuple):
    """References to events, in an order.

    Attributes
    ----------
    kind : pyarrow.Array
        Table of each event: `SCHEDULER`, `WORKER` or `TRANSFER`.
    row : pyarrow.Array
        Its row in that table.
    """

    kind: pa.Array
    row: pa.Array

    def slice(self, start: int, stop: int) -> Rows:
        """Return the references from `start` up to, but not including, `stop`."""
        return Rows(self.kind.slice(start, stop - start), self.row.slice(start, stop - start))

    def of(self, kind: int) -> pa.Array:
        """Return the rows of the events of one kind, in order."""
        return self.row.filter(pc.equal(self.kind, kind))


class Index(NamedTuple):
    """The tasks of a run, and references to its events.

    Attributes
    ----------
    names, types : pyarrow.Array
        Key of each task as Dask shows it, and its type, in order of first appearance.
    ends : pyarrow.Array
        Position in `by_task` after the last event of each task.
    by_task : Rows
        Events by task, then time; a transfer is under each of its keys.
    by_time : Rows
        All events once, by time.
    columns : tuple of pyarrow.Table
        The tables by kind, with times as nanoseconds.
    """

    names: pa.Array
    types: pa.Array
    ends: pa.Array
    by_task: Rows
    by_time: Rows
    columns: tuple[pa.Table, pa.Table, pa.Table]

    def span(self, task: int) -> tuple[int, int]:
        """Return the positions in `by_task` of a task's first event and after its last event."""
        return (self.ends[task - 1].as_py() if task else 0), self.ends[task].as_py()

    def pages(self, size: int) -> Iterator[tuple[int, list[int]]]:
        """Yield pages of consecutive tasks; each but the last has at least `size` events.

        Each page is the number of its first task, and the positions in `by_task` where the events
        of its tasks begin, followed by the position after the last event.
        """
        first, bounds = 0, [0]
        for start in range(0, len(self.ends), size):
            for end in self.ends.slice(start, size).to_pylist():
                bounds.append(end)
                if end - bounds[0] >= size:
                    yield first, bounds
                    first, bounds = first + len(bounds) - 1, [end]
        if len(bounds) > 1:
            yield first, bounds


_NO_ROWS = Rows(pa.array([], pa.int8()), pa.array([], pa.int64()))

_NO_STATES = pa.table({name: pa.array([], pa.string()) for name in ("start_state", "finish_state")})

#: The index of no run.
EMPTY = Index(
    names=pa.array([], pa.string()),
    types=pa.array([], pa.string()),
    ends=pa.array([], pa.int64()),
    by_task=_NO_ROWS,
    by_time=_NO_ROWS,
    columns=(_NO_STATES, _NO_STATES, pa.table({})),
)


def build(run: Run) -> Index:
    """Return the index of a run.

    Parameters
    ----------
    run : Run
        The run; all its events are sorted here.

    Raises
    ------
    StrataError
        The run cannot be read.
    """
    tables = {name: _numbered(run[name].to_arrow()) for name in _TABLES}
    with closing(connect()) as connection, computing():
        for name, table in tables.items():
            register(connection, name, table)
        for query in (_EVENTS, _TASKS):
            interruptible(connection, partial(connection.execute, query))
        tasks = fetch(connection, "select key, key_type, n from tasks order by task")
        by_task = _rows(fetch(connection, _BY_TASK))
        interruptible(connection, partial(connection.execute, "drop table events"))
        by_time = _rows(fetch(connection, _BY_TIME))
        intervals = fetch(connection, _INTERVAL)
        transfers = fetch(connection, _TRANSFER)
    scheduler, ends = tables["scheduler_transitions"], tables["transfer_ends"]
    processes = dict(
        zip(*(tables["processes"][c].to_pylist() for c in ("process", "address")), strict=True)
    )
    ids = scheduler["process"].cast(pa.string()).dictionary_encode().combine_chunks()
    by_process = pa.array([processes.get(p) for p in ids.dictionary.to_pylist()], pa.string())
    scheduler = scheduler.append_column("address", by_process.take(ids.indices))
    return Index(
        names=tasks["key"].combine_chunks(),
        types=tasks["key_type"].combine_chunks(),
        ends=pc.cumulative_sum(tasks["n"].combine_chunks()),
        by_task=by_task,
        by_time=by_time,
        columns=(
            _with(scheduler, intervals),
            tables["worker_transitions"],
            _with(ends, transfers),
        ),
    )


def _numbered(table: pa.Table) -> pa.Table:
    """Return a table with times as nanoseconds, and the column `row` with the row numbers."""
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = _NS
        elif pa.types.is_list(kind):
            kind = _INTERVALS
        fields.append(pa.field(field.name, kind))
    numbers = pa.array(range(len(table)), pa.int64())
    return table.cast(pa.schema(fields)).append_column("row", numbers)


def _rows(table: pa.Table) -> Rows:
    return Rows(table["kind"].combine_chunks(), table["row"].combine_chunks())


def _with(table: pa.Table, more: pa.Table) -> pa.Table:
    """Return a table with columns added or replaced."""
    kept = [name for name in table.column_names if name not in more.column_names]
    return pa.table([*table.select(kept).columns, *more.columns], [*kept, *more.column_names])
