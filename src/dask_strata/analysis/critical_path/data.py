"""Input of the critical path, as columns of numbers.

Attempts have the index of their row in `PathData.attempts`; tasks are numbered in order of
their first attempt. Times are integer nanoseconds on the scheduler's clock, -1 if unknown.
"""

from __future__ import annotations

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
    ), lives as (select _key, submitted from tasks where submitted is not null)
    select a.attempt, min(a.attempt) over (partition by a._key) as task,
           a.key, a.key_type, coalesce(a.prefix, '(unknown)') as prefix, a.worker,
           coalesce(epoch_ns(a.start), s.a) as start, coalesce(epoch_ns(a.stop), s.b) as stop,
           coalesce(epoch_ns(l.submitted), -1) as submitted,
           a.outcome in ('memory', 'erred') as done
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
    select attempt, worker,
           case when action in ('transfer', 'deserialize') then action
                when action like 'disk%' then 'spill' else 'compute' end as cause,
           epoch_ns(start) as start, epoch_ns(stop) as stop
    from phases where stop > start order by attempt, start, stop
"""

#: Intervals in which a task was in the scheduler's states queued or no-worker.
_QUEUED = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select f.task, epoch_ns(m.time) as start, epoch_ns(m.next_time) as stop
    from _transitions m join firsts f on f._key = m._key
    where m.finish_state in ('queued', 'no-worker') and m.next_time is not null
    order by f.task, m.time
"""

_UNDER_WAY = """
    select epoch_ns(submitted) as start,
           coalesce(epoch_ns(coalesce(finished, forgotten)), 9223372036854775807) as stop
    from tasks where submitted is not null
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
        self.submitted = _ints(self.attempts, "submitted")
        self.done = self.attempts["done"].to_numpy(zero_copy_only=False)
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
    def queued(self) -> tuple[Groups, Ints, Ints]:
        """Intervals in the states queued and no-worker, by task: starts and stops."""
        found = self._run.arrow(_QUEUED)
        task = np.searchsorted(self._ids, _ints(found, "task"))
        return Groups.of(task, len(self._ids)), _ints(found, "start"), _ints(found, "stop")

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
        threads = {
            row["worker"]: row["n"]
            for row in self._run.rows("select worker, max(nthreads) as n from workers group by 1")
        }
        found = self._phases.filter(
            pc.not_equal(self._phases["cause"], "transfer")
        ).combine_chunks()
        worker = found["worker"].cast(pa.string()).combine_chunks().dictionary_encode()
        names: list[Any] = worker.dictionary.to_pylist()
        codes = worker.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        groups = Groups.of(codes.astype(np.int64), len(names))
        start, stop = _ints(found, "start"), _ints(found, "stop")
        return {
            name: full(start[groups.rows(i)], stop[groups.rows(i)], threads.get(name))
            for i, name in enumerate(names)
        }

    @cached_property
    def crowded(self) -> tuple[Ints, Ints]:
        """Intervals in which all threads of all workers were busy, or no worker was connected."""
        connected = self._run.arrow("""
            select epoch_ns(start) as start, coalesce(epoch_ns(stop), 9223372036854775807) as stop
            from workers where start is not null
        """)
        start, stop = _ints(connected, "start"), _ints(connected, "stop")
        full_start, full_stop = (
            np.concatenate([np.empty(0, np.int64), *(pair[i] for pair in self.full.values())])
            for i in (0, 1)
        )
        return crowded(start, stop, full_start, full_stop)


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
