"""The keys of a run whose derived rows may have changed since an earlier look at it.

A key has changed if new rows name it. Others may have changed, too, as derived rows also depend on
tables that have no key: an attempt under way lasts until the last moment on record, and a spill
belongs to the attempts on its worker at that time, though its row arrives later than theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.run.duckdb_session import execute, fetch
from dask_strata.run.growing.rows import NEW, NewRows
from dask_strata.store.key_texts import ROW

if TYPE_CHECKING:
    import duckdb

    from dask_strata.run.growing.views import GrowingViews

#: Executions are matched with attempts that began up to this time before or after, in ns.
_MARGIN_NS = 1_000_000_000

#: Moments of new rows that attempts on the same worker, and at that time, may depend on.
_MOMENTS = {
    "spills": ("epoch_ns(time) - coalesce((seconds * 1e9)::bigint, 0)", "true"),
    "worker_events": ("epoch_ns(time)", "action = 'remove'"),
    "worker_transitions": (
        "epoch_ns(time)",
        "list_has_any([start_state, finish_state], ['fetch', 'flight', 'constrained'])",
    ),
}

#: Rows that show which results a worker held, as in the table of replicas. Those of other workers
#: are known by the scheduler's transitions.
_REPORTS = {
    "worker_transitions": "(finish_state = 'memory') <> (start_state = 'memory')",
    "worker_log": "event = 'held-at-start'",
}

_Ints = npt.NDArray[np.int64]


class Changes:
    """The keys that changed at each look.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The database that gets the tables of changed keys.
    views : GrowingViews
        The tables of the run.
    new : NewRows
        The new rows.

    Attributes
    ----------
    look : int
        Number of the present look.
    """

    #: Table of the changed keys, with the last look at which each changed.
    CHANGED = "_changed_keys"
    #: Table of the changed keys that the Parquet has.
    REPLACED = "_replaced_keys"

    _OPEN = "_open_keys"

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, views: GrowingViews, new: NewRows
    ) -> None:
        self._connection, self._views, self._new = connection, views, new
        self._n_old = new.n_keys
        self.look = 0
        self.n_replaced = 0
        self._ids: list[_Ints] = []
        self._rows_before: dict[str, int] = {}
        execute(connection, f"create table {self.CHANGED} (key_id int, look int)")
        execute(connection, f"create table {self.REPLACED} (key_id int)")
        running = "select null::int as key_id where false"
        if views.in_parquet("attempts"):
            running = f"{self._attempts('key_id')} where outcome = 'running'"
        #: Workers whose transitions are on record.
        self._reporting = self._reporting_workers({name: views.scan(name) for name in _REPORTS})
        execute(connection, f"create table {self._OPEN} as select distinct key_id from ({running})")

    def begin_look(self) -> None:
        """Begin a look: `add` adds its keys."""
        self.look += 1
        self._ids = []
        self._rows_before = dict(self._new.n)

    def add(self, ids: _Ints) -> None:
        """Add keys that new rows name."""
        self._ids.append(ids)

    def end_look(self) -> None:
        """Add the other keys that may have changed."""
        if self._views.in_parquet("attempts"):
            self._ids += [self._query(query) for query in self._others()]
        found = np.unique(np.concatenate([np.empty(0, np.int64), *self._ids]))
        keys = pa.table({"key_id": pa.array(found, pa.int32())})
        self._connection.register("_found", keys)
        execute(self._connection, f"delete from {self.CHANGED} where key_id in (from _found)")
        execute(
            self._connection, f"insert into {self.CHANGED} select key_id, {self.look} from _found"
        )
        execute(
            self._connection,
            f"insert into {self.REPLACED} from _found where key_id < {self._n_old} "
            f"and key_id not in (from {self.REPLACED})",
        )
        self._connection.unregister("_found")
        self.n_replaced = self._count(f"from {self.REPLACED}")
        self._update_open()

    def n_since(self, look: int) -> int:
        """Return the number of keys that changed since a look."""
        return self._count(f"from {self.CHANGED} where look > {look}")

    def _update_open(self) -> None:
        """Update the keys of attempts under way."""
        rows = self._rows("scheduler_transitions")
        if rows is None:
            return
        execute(
            self._connection,
            f"delete from {self._OPEN} where key_id in (select key_id from {rows})",
        )
        execute(
            self._connection,
            f"insert into {self._OPEN} select key_id from {rows} where key_id is not null "
            f"group by key_id having arg_max(finish_state, {ROW}) = 'processing'",
        )

    def _others(self) -> list[str]:
        """Return queries for keys that no new row names, but that may have changed."""
        key = "key_id as key"
        found = [
            f"select {key} from {self._OPEN}",
            # The cause of a worker's end may be on record later; numbers of attempts that only
            # workers record follow those of the scheduler's.
            f"{self._attempts(key)} where outcome = 'lost' or _seq is null",
        ]
        moments = [
            f"select worker, min({moment}) as t from {rows} where {condition} group by worker"
            for name, (moment, condition) in _MOMENTS.items()
            if (rows := self._rows(name)) is not None
        ]
        if moments:
            late = (
                f"select worker, min(t) as t from ({' union all '.join(moments)}) group by worker"
            )
            found.append(
                f"{self._attempts(key)} a join ({late}) m on m.worker = a.worker "
                f"and epoch_ns(a.stop) >= m.t - {_MARGIN_NS}"
            )
        begun = self._rows("processes")
        if begun is not None:
            found.append(
                f"{self._attempts(key)} where worker in "
                f"(select address from {begun} where start is not null)"
            )
        first = self._reporting_workers({name: self._rows(name) for name in _REPORTS})
        first -= self._reporting
        if first:
            self._reporting |= first
            listed = ", ".join("'" + worker.replace("'", "''") + "'" for worker in first)
            found.append(f"{self._attempts(key)} where worker in ({listed})")
        removed = self._rows("worker_events")
        if removed is not None and self._views.in_parquet("replicas"):
            replicas = self._views.scan("replicas")
            found.append(
                f"select {key} from {replicas} where stop is null and worker in "
                f"(select worker from {removed} where action = 'remove')"
            )
        return found

    def _reporting_workers(self, rows: Mapping[str, str | None]) -> set[str]:
        """Return the workers whose rows show which results they held."""
        found: set[str] = set()
        for name, source in rows.items():
            if source is not None and self._views.has_rows(name):
                query = f"select distinct worker from {source} where {_REPORTS[name]}"
                found |= set(fetch(self._connection, query)["worker"].to_pylist())
        return found - {None}

    def _attempts(self, columns: str) -> str:
        # Attempts of keys that have changed since they were computed are known to have changed.
        return f"select {columns} from {self._views.scan('attempts')}"

    def _rows(self, name: str) -> str | None:
        """Return what queries read the new rows of this look from; None if there are none."""
        before, now = self._rows_before.get(name, 0), self._new.n.get(name, 0)
        if before == now:
            return None
        return f'(select * from "{NEW}{name}" limit {now - before} offset {before})'

    def _query(self, query: str) -> _Ints:
        found = fetch(self._connection, f"select distinct key from ({query}) where key is not null")
        return np.asarray(found["key"].to_numpy(), np.int64)

    def _count(self, query: str) -> int:
        found = fetch(self._connection, f"select count(*) as n {query}").to_pylist()
        return int(found[0]["n"])
