"""Rows of derived tables while a run is recorded, each of them once, when it is final."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dask_strata.errors import UsageError
from dask_strata.run import Run
from dask_strata.run.derived import definitions
from dask_strata.run.table_view import as_type
from dask_strata.schema import DERIVED
from dask_strata.store.arrow import arrow_schema
from dask_strata.stream.batch import Batch

#: Shortest time between two looks, and the share of time that they may take.
_PAUSE_SECONDS = 1.0
_SHARE = 0.2

#: Rows that concern a moment may be written this much later, besides the interval of flushes.
_LATE_SECONDS = 2.0

#: Attempts and tasks whose rows no later row changes. Those of lost workers are not among them, as
#: the cause of the end may be recorded later; nor are those that only workers recorded, as their
#: numbers follow those of the others.
_FINAL = {
    "attempts": "_seq is not null and outcome in ('memory', 'erred') and worker_end is null "
    "and coalesce(exception, '') not like 'KilledWorker%' and epoch_ns(stop) < $1",
    "tasks": "position is not null and state in ('memory', 'erred') and worker_ends is null "
    "and n_attempts <= 1 and coalesce(exception, '') not like 'KilledWorker%' "
    "and finished_before is not true and epoch_ns(forgotten) < $1",
}

#: Columns that a row has from its start.
_IDENTITY = {"attempts": "key, key_type, _seq", "tasks": "key, key_type, life, position"}


class DerivedRows:
    """The rows of derived tables, of which some have been yielded.

    Parameters
    ----------
    run : Run
        The run.
    tables : sequence of str
        The wanted tables.
    """

    def __init__(self, run: Run, tables: Sequence[str]) -> None:
        if tables and not run.align:
            raise UsageError("Derived tables have aligned times.", hint="Open the run as usual.")
        # One of its own: a query of the caller would end the iteration over an answer.
        self._run, self._tables = Run(run.path), tables
        self._next_look = 0.0
        self._n: dict[str, int] = defaultdict(int)
        #: Hashes of the rows that were yielded, in ascending order.
        self._yielded: dict[str, list[np.ndarray]] = defaultdict(list)

    def final(self, complete_until: float | None) -> Iterator[Batch]:
        """Yield the rows that have become final.

        Parameters
        ----------
        complete_until : float or None
            Time up to which all processes have written their rows, in seconds since the epoch.
        """
        tables = [name for name in self._tables if name in _FINAL]
        began = time.monotonic()
        if not tables or complete_until is None or began < self._next_look:
            return
        self._run.refresh()
        late = _LATE_SECONDS + 2 * self._run.flush_interval_seconds
        until = int((complete_until - late) * 1e9)
        for name in tables:
            yield from self._new(name, _FINAL[name], until)
        took = time.monotonic() - began
        self._next_look = time.monotonic() + max(_PAUSE_SECONDS, took / _SHARE)

    def rest(self) -> Iterator[Batch]:
        """Yield all rows that were not yielded: the recording has ended."""
        if self._tables:
            self._run.refresh()
        for name in self._tables:
            yield from self._new(name)

    def _new(self, name: str, where: str = "true", *parameters: int) -> Iterator[Batch]:
        schema = arrow_schema(DERIVED[name])
        columns = ", ".join(f't."{field.name}"' for field in schema)
        identity = f"hash({_IDENTITY[name]})" if name in _IDENTITY else "null::ubigint"
        order = definitions()[name].order
        query = f"select {columns}, {identity} as _identity from {name} t where {where}"  # noqa: S608
        query += f" order by {order}" if order else ""
        known = self._known(name)
        new = []
        for batch in self._run.batches(query, *parameters):
            rows = pa.Table.from_batches([batch])
            if name in _IDENTITY:
                hashes = rows["_identity"].to_numpy()
                is_new = ~np.isin(hashes, known) if len(known) else np.ones(len(hashes), bool)
                rows = rows.filter(pa.array(is_new))
                new.append(hashes[is_new])
            if len(rows):
                yield self._batch(name, rows, schema)
        self._yielded[name] += [hashes for hashes in new if len(hashes)]

    def _known(self, name: str) -> np.ndarray:
        found = self._yielded[name]
        if len(found) > 1:
            found[:] = [np.concatenate(found)]
        return found[0] if found else np.empty(0, np.uint64)

    def _batch(self, name: str, rows: pa.Table, schema: pa.Schema) -> Batch:
        arrays = [as_type(rows[field.name], field.type) for field in schema]
        [made] = pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches()
        first = self._n[name]
        self._n[name] += len(rows)
        return Batch(name, None, first, self._n[name] - 1, made)
