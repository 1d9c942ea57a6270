"""The keys of a run whose derived rows may have changed since an earlier look at it.

A key has changed if new rows name it. Others may have changed, too, as derived rows also depend on
tables that have no key: an attempt under way lasts until the last moment on record, and a spill
belongs to the attempts on its worker at that time, though its row arrives later than theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.run.duckdb_session import execute, fetch
from dask_strata.run.growing.rows import NEW, NewRows
from dask_strata.run.own_tasks import OWN
from dask_strata.run.stored.views import OWN_KEYS
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

#: Attempts whose rows may change without a new row of their key: the cause of their worker's end
#: may be on record later; their function may still run although the scheduler released them; the
#: numbers of attempts that only workers record follow those of the scheduler's.
_UNSETTLED = """
    outcome = 'lost' or exception like 'KilledWorker%' or _seq is null
    or (outcome not in ('memory', 'erred') and compute_seconds is not null)
"""

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
        #: Workers whose rows show which results they held; and those of them with own tasks.
        self._workers = self._reporting_workers({name: views.scan(name) for name in _REPORTS})
        self._reporting: set[str] = set()
        self._first_reports()
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
            f"{self._attempts(key)} where {_UNSETTLED}",
            # Attempts that were not computed since are not among those that are looked at below.
            f"select {key} from {self.CHANGED} where look > {self._views.computed_at('attempts')}",
        ]
        if self._views.in_parquet("tasks"):
            # Of tasks from before the recording, the wait counts from its first moment.
            tasks = self._views.scan("tasks")
            begun_before = "_since is not null and _since is distinct from submitted"
            found.append(f"select {key} from {tasks} where {begun_before}")
        moments = [
            f"select worker, min({moment} + coalesce(o.ns, 0)) as t from {rows} r "
            f"left join ({self._views.shifts()}) o on o.process = r.process "
            f"where {condition} group by worker"
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
        self._workers |= self._reporting_workers({n: self._rows(n) for n in _REPORTS})
        first = self._first_reports()
        if first:
            found.append(f"{self._attempts(key)} where worker in {_listed(first)}")
        removed = self._rows("worker_events")
        if removed is not None and self._views.in_parquet("replicas"):
            replicas = self._views.scan("replicas")
            removals = f"select worker, time from {removed} where action = 'remove'"
            found.append(
                f"select {key} from {replicas} h join ({removals}) m on m.worker = h.worker "
                "where h.stop is null or h.stop > m.time"
            )
        return found

    def _first_reports(self) -> set[str]:
        """Return the workers that count as reporting since now, as rows of own tasks show it."""
        first = self._workers - self._reporting
        if first and self._views.only_own:
            own = [self._views.scan(OWN_KEYS)]
            own += [f'"{NEW}{name}"' for name in OWN if self._views.has_new_rows(name)]
            keys = " union all ".join(f"select key_id from {each}" for each in own)
            sources = {name: self._views.scan(name) for name in _REPORTS}
            only = f" and worker in {_listed(first)} and key_id in ({keys})"
            first = self._reporting_workers(sources, only)
        self._reporting |= first
        return first

    def _reporting_workers(self, rows: Mapping[str, str | None], only: str = "") -> set[str]:
        """Return the workers whose rows show which results they held."""
        found: set[str] = set()
        for name, source in rows.items():
            if source is not None and self._views.has_rows(name):
                query = f"select distinct worker from {source} where {_REPORTS[name]}{only}"
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


def _listed(texts: Iterable[str]) -> str:
    """Return texts as a list in SQL."""
    return "(" + ", ".join("'" + text.replace("'", "''") + "'" for text in sorted(texts)) + ")"
