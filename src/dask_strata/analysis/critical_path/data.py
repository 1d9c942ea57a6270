"""Input of the critical path, as columns of numbers.

Attempts have the index of their row in `PathData.attempts`; tasks are numbered in order of
their first attempt. Times are integer nanoseconds on the scheduler's clock, -1 if unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from dask_strata.run import Run

Ints = npt.NDArray[np.int64]

_ATTEMPTS = """
    with seen as (
        select attempt, min(epoch_ns(start)) as a, max(epoch_ns(stop)) as b
        from phases group by attempt
    ), lives as (
        select _key, _since as submitted, false as renewed from tasks where _since is not null
        union all
        -- A result that was lost or released, and is needed again: nobody waited for it before.
        select r._key, w.time, true from _transitions r join _transitions w on w._row = r.next_row
        where r.start_state in ('memory', 'erred') and w.finish_state = 'waiting'
    )
    select a.attempt, min(a.attempt) over (partition by a._key) as task,
           a.key, a.key_type, coalesce(a.prefix, '(unknown)') as prefix, a.worker,
           -- Without rows of the scheduler an attempt starts with the first phase that is known.
           case when a._seq is null then least(epoch_ns(a.start), s.a)
                else coalesce(epoch_ns(a.start), s.a) end as start,
           coalesce(epoch_ns(a.stop), s.b) as stop,
           coalesce(epoch_ns(l.submitted), -1) as submitted, coalesce(l.renewed, false) as renewed,
           a.outcome in ('memory', 'erred') or (a.outcome = 'running' and s.b is not null) as done,
           a.outcome in ('memory', 'erred', 'retried') as reported, a._seq is not null as scheduled
    from attempts a
    left join seen s on s.attempt = a.attempt
    asof left join lives l
      on l._key = a._key and a.start >= l.submitted
    where (a.start is not null or s.a is not null) and (a.stop is not null or s.b is not null)
    order by a.attempt
"""

_EDGES = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select distinct t.task, d.task as dependency
    from graph_edges e
    join firsts t on t._key = e._key
    join firsts d on d._key = e._dependency
"""

_PHASES = """
    select p.attempt, worker,
           case when action in ('compute', 'executing') and r.attempt is not null then 'transfer'
                when action in ('transfer', 'deserialize') then action
                when action like 'disk%' then 'disk' else 'compute' end as cause,
           epoch_ns(start) as start, epoch_ns(stop) as stop
    from phases p left join _shuffle_barriers r on r.attempt = p.attempt
    where stop > start order by p.attempt, start, stop
"""

#: Intervals in which a task was in the scheduler's states queued or no-worker.
_QUEUED = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select f.task, epoch_ns(m.time) as start, epoch_ns(m.next_time) as stop,
           m.finish_state = 'no-worker' as unplaceable
    from _transitions m join firsts f on f._key = m._key
    where m.finish_state in ('queued', 'no-worker') and m.next_time is not null
    order by f.task, m.time
"""

_UNDER_WAY = """
    select epoch_ns(_since) as start,
           coalesce(epoch_ns(coalesce(finished, forgotten)), 9223372036854775807) as stop
    from tasks where _since is not null
"""


@dataclass(frozen=True)
class Groups:
    """Rows in groups: ``order[first[i]:first[i + 1]]`` are the rows of group ``i``.

    >>> Groups.of(np.array([1, 0, 1]), 2).rows(1).tolist()
    [0, 2]
    """

    order: Ints
    first: Ints

    @classmethod
    def of(cls, group: Ints, n: int) -> Groups:
        """Group rows by the number of their group, in their order.

        Parameters
        ----------
        group : array of int
            Group of each row.
        n : int
            Number of groups.
        """
        order = np.argsort(group, kind="stable")
        first = np.searchsorted(group[order], np.arange(n + 1))
        return cls(order, first)

    def rows(self, i: int) -> Ints:
        """Return the rows of one group."""
        return self.order[self.first[i] : self.first[i + 1]]


class PathData:
    """Columns of a run that the critical path needs, each read at its first use.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.attempts: pa.Table = run.arrow(_ATTEMPTS)
        numbers = _ints(self.attempts, "attempt")
        self.start = _ints(self.attempts, "start")
        # Start and stop may be of two clocks that disagree: no attempt ends before it starts.
        self.stop = np.maximum(_ints(self.attempts, "stop"), self.start)
        #: When the task was submitted, or needed again after its result was lost or released.
        self.submitted = _ints(self.attempts, "submitted")
        self.renewed = self.attempts["renewed"].to_numpy(zero_copy_only=False)
        #: Attempts with a result, and those that were executing at the end of the record.
        self.done = self.attempts["done"].to_numpy(zero_copy_only=False)
        #: Attempts whose end the worker reported to the scheduler.
        self.reported = self.attempts["reported"].to_numpy(zero_copy_only=False)
        #: Attempts of which the scheduler has rows.
        self.scheduled = self.attempts["scheduled"].to_numpy(zero_copy_only=False)
        ids, self.task = np.unique(_ints(self.attempts, "task"), return_inverse=True)
        self._ids, self._numbers = ids, numbers
        by_stop = np.lexsort((self.stop, self.task))
        bounds = np.searchsorted(self.task[by_stop], np.arange(len(ids) + 1))
        #: Attempts at each task, in order of their ends.
        self.of_task = Groups(by_stop, bounds)

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def dependencies(self) -> tuple[Groups, Ints]:
        """Edges of the graph by task, and for each edge the dependency."""
        found = self._run.arrow(_EDGES)
        needs = np.searchsorted(self._ids, _ints(found, "dependency"))
        task = np.searchsorted(self._ids, _ints(found, "task"))
        known = (needs < len(self._ids)) & (task < len(self._ids))
        task, needs = task[known], needs[known]
        return Groups.of(task, len(self._ids)), needs

    @cached_property
    def _phases(self) -> pa.Table:
        return self._run.arrow(_PHASES)

    @cached_property
    def phases(self) -> tuple[Groups, list[str], Ints, Ints]:
        """Phases by attempt, their causes, starts and stops."""
        found = self._phases
        row = np.searchsorted(self._numbers, _ints(found, "attempt"))
        groups = Groups.of(row, len(self))
        return groups, found["cause"].to_pylist(), _ints(found, "start"), _ints(found, "stop")

    @cached_property
    def opening(self) -> dict[int, int]:
        """Nanoseconds that attempts spent opening the file of their chunk, where known."""
        found = self._run.arrow(
            "select attempt, (open_seconds * 1e9)::bigint as ns from chunks "
            "where open_seconds > 0 and attempt is not null"
        )
        rows = np.searchsorted(self._numbers, _ints(found, "attempt"))
        return dict(zip(rows.tolist(), _ints(found, "ns").tolist(), strict=True))

    @cached_property
    def queued(self) -> tuple[Groups, Ints, Ints, npt.NDArray[np.bool_]]:
        """Intervals in queued and no-worker, by task: starts, stops, whether in no-worker."""
        found = self._run.arrow(_QUEUED)
        task = np.searchsorted(self._ids, _ints(found, "task"))
        unplaceable = found["unplaceable"].to_numpy(zero_copy_only=False).astype(np.bool_)
        times = (_ints(found, "start"), _ints(found, "stop"))
        return Groups.of(task, len(self._ids)), *times, unplaceable

    @cached_property
    def _waits(self) -> tuple[Groups, npt.NDArray[np.object_], Ints, Ints]:
        found = self._run.arrow("select * from _waits order by attempt, start")
        row = np.searchsorted(self._numbers, _ints(found, "attempt"))
        causes = np.array(found["cause"].to_pylist(), np.object_)
        return Groups.of(row, len(self)), causes, _ints(found, "start"), _ints(found, "stop")

    def waits(self, attempt: int, cause: str) -> tuple[Ints, Ints]:
        """Return the disjoint intervals in which an attempt waited, for one cause."""
        groups, causes, start, stop = self._waits
        rows = groups.rows(attempt)
        rows = rows[causes[rows] == cause]
        return start[rows], stop[rows]

    @cached_property
    def _conditions(self) -> dict[tuple[str, str], tuple[Ints, Ints]]:
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row in self._run.rows("select * from _worker_conditions where stop > start"):
            of_worker = found.setdefault((row["worker"], row["condition"]), [])
            of_worker.append((row["start"], row["stop"]))
        times = {name: np.array(pairs, np.int64) for name, pairs in found.items()}
        return {name: merged(pairs[:, 0], pairs[:, 1]) for name, pairs in times.items()}

    def condition(self, worker: str | None, name: str) -> tuple[Ints, Ints]:
        """Return the disjoint intervals of a condition of a worker, see `_worker_conditions`."""
        return self._conditions.get((worker or "", name), NONE)

    @cached_property
    def scheduler_blocks(self) -> tuple[Ints, Ints]:
        """Disjoint intervals in which the scheduler's event loop was blocked, in order."""
        found = self._run.arrow("from _loop_blocks where worker is null and stop_ns > start_ns")
        return merged(_ints(found, "start_ns"), _ints(found, "stop_ns"))

    @cached_property
    def under_way(self) -> tuple[Ints, Ints]:
        """Disjoint intervals in which the scheduler had unfinished tasks, in order."""
        found = self._run.arrow(_UNDER_WAY)
        return merged(_ints(found, "start"), _ints(found, "stop"))

    @cached_property
    def sent(self) -> Ints:
        """Times at which clients sent graphs, in order."""
        found = self._run.arrow("select epoch_ns(time) as t from client_submissions order by 1")
        return _ints(found, "t")

    @cached_property
    def full(self) -> dict[str, tuple[Ints, Ints]]:
        """Intervals in which all threads of a worker were busy, by worker."""
        return self._full(self._busy)

    @cached_property
    def full_with_others(self) -> dict[str, tuple[Ints, Ints]]:
        """The same with the tasks of other clients; empty if these are not left out."""
        others = self._run.arrow("select worker, start, stop from _other_executions")
        if not len(others):
            return {}
        return self._full(pa.concat_tables([self._busy, others.cast(self._busy.schema)]))

    @cached_property
    def _full_or_fetching(self) -> dict[str, tuple[Ints, Ints]]:
        """Intervals in which as many tasks as a worker has threads computed or fetched."""
        waits = self._run.arrow(
            "select worker, start, stop from _waits where cause <> 'waiting for a resource'"
        )
        return self._full(pa.concat_tables([self._busy, waits.cast(self._busy.schema)]))

    @cached_property
    def _busy(self) -> pa.Table:
        computing = pc.not_equal(self._phases["cause"], "transfer")
        return self._phases.filter(computing).select(["worker", "start", "stop"])

    def _full(self, busy: pa.Table) -> dict[str, tuple[Ints, Ints]]:
        threads = {
            row["worker"]: row["n"]
            for row in self._run.rows("select worker, max(nthreads) as n from workers group by 1")
        }
        worker = pc.dictionary_encode(busy["worker"].cast(pa.string())).combine_chunks()
        names: list[Any] = worker.dictionary.to_pylist()
        codes = worker.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        groups = Groups.of(codes.astype(np.int64), len(names))
        start, stop = _ints(busy, "start"), _ints(busy, "stop")
        return {
            name: full(start[groups.rows(i)], stop[groups.rows(i)], threads.get(name))
            for i, name in enumerate(names)
        }

    @cached_property
    def _connected(self) -> dict[str, tuple[Ints, Ints]]:
        found = self._run.arrow("""
            select worker, epoch_ns(start) as start,
                   coalesce(epoch_ns(stop), 9223372036854775807) as stop
            from workers where start is not null
        """)
        times: dict[str, list[tuple[int, int]]] = {}
        for row in found.to_pylist():
            times.setdefault(row["worker"], []).append((row["start"], row["stop"]))
        pairs = {worker: np.array(of_worker, np.int64) for worker, of_worker in times.items()}
        return {worker: merged(p[:, 0], p[:, 1]) for worker, p in pairs.items()}

    @cached_property
    def without_place(self) -> list[tuple[str, Ints, Ints]]:
        """Causes for which no worker had a place for a queued task, and when.

        A place on a worker is taken by a task that computes or fetches its dependencies; a worker
        that is paused, spills, is silent or has a blocked event loop has none. Each cause completes
        those before it: it counts where these alone would leave a place. Without a connected
        worker, the first counts.
        """
        taken = dict(self.full)
        found = [("waiting for a worker", *self._taken(taken))]
        for name in (
            "other clients",
            "paused worker",
            "transfer",
            "spill",
            "blocked event loop",
            "silent worker",
        ):
            if name == "other clients":
                more = self.full_with_others
            elif name == "transfer":
                more = self._full_or_fetching
            else:
                more = {w: times for (w, n), times in self._conditions.items() if n == name}
            for worker, times in more.items():
                taken[worker] = merged(*_joined([taken.get(worker, NONE), times]))
            found.append((name, *self._taken(taken)))
        return found

    def _taken(self, by_worker: dict[str, tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
        # A worker may be paused or busy after the scheduler removed it.
        while_connected = (
            full(*_joined([by_worker[worker], times]), 2)
            for worker, times in self._connected.items()
            if worker in by_worker
        )
        return crowded(*_joined(self._connected.values()), *_joined(while_connected))


#: No intervals.
NONE: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))


def _joined(pairs: Iterable[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    found = [NONE, *pairs]
    return np.concatenate([p[0] for p in found]), np.concatenate([p[1] for p in found])


def crowded(start: Ints, stop: Ints, full_start: Ints, full_stop: Ints) -> tuple[Ints, Ints]:
    """Return the intervals in which each connected worker is full, or no worker is connected.

    Parameters
    ----------
    start, stop : array of int
        Intervals in which each worker was connected.
    full_start, full_stop : array of int
        Intervals in which all threads of a worker were busy.
    """
    times = np.concatenate([start, stop, full_start, full_stop])
    joined = [np.ones_like(start), -np.ones_like(stop), 0 * full_start, 0 * full_stop]
    busy = [0 * start, 0 * stop, np.ones_like(full_start), -np.ones_like(full_stop)]
    order = np.argsort(times, kind="stable")
    n_joined, n_full = (np.cumsum(np.concatenate(steps)[order]) for steps in (joined, busy))
    # Before the first of these times, no worker is connected.
    at = np.concatenate([[True], n_full >= n_joined])
    ends = np.iinfo(np.int64)
    bounds = np.concatenate([[ends.min], times[order], [ends.max]])
    edges = np.flatnonzero(np.diff(at.astype(np.int8), prepend=0, append=0))
    return bounds[edges[::2]], bounds[edges[1::2]]


def full(start: Ints, stop: Ints, threads: int | None) -> tuple[Ints, Ints]:
    """Return the intervals in which a worker's busy intervals overlap once for each thread.

    Parameters
    ----------
    start, stop : array of int
        Busy intervals of the worker's threads.
    threads : int or None
        Number of threads; if None, the largest number that were ever busy at once.

    >>> [times.tolist() for times in full(np.array([0, 2]), np.array([5, 9]), 2)]
    [[2], [5]]
    """
    times = np.concatenate([start, stop])
    steps = np.concatenate([np.ones_like(start), -np.ones_like(stop)])
    order = np.lexsort((steps, times))  # at the same moment, ends before starts
    times, busy = times[order], np.cumsum(steps[order])
    if not len(times):
        return times, times
    at = busy >= (threads or max(int(busy.max()), 1))
    edges = np.flatnonzero(np.diff(at.astype(np.int8), prepend=0, append=0))
    return times[edges[::2]], times[np.minimum(edges[1::2], len(times) - 1)]


def merged(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Return the union of intervals, as disjoint intervals in order.

    >>> [times.tolist() for times in merged(np.array([0, 2, 7]), np.array([3, 5, 8]))]
    [[0, 7], [5, 8]]
    """
    if not len(start):
        return start, stop
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order])
    first = np.concatenate([[True], start[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return start[first], reach[last]


def _ints(table: pa.Table, name: str) -> Ints:
    column = table[name].cast(pa.int64())
    return np.asarray(column.to_numpy(), dtype=np.int64)
