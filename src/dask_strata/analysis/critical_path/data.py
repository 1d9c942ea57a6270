"""Input of the critical path, as columns of numbers.

Attempts have the index of their row in the columns of `PathData`, which are in order of the
numbers of attempts; tasks are numbered by the ids of their keys. Times are integer nanoseconds on
the scheduler's clock, -1 if unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dask_strata.analysis.critical_path.interruptions import Interruptions
from dask_strata.analysis.series.columns import Array, Ints, Names, arrays, columns, groups

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Attempts of which a time is known. Those that the scheduler's rows describe need no phases.
_ATTEMPTS = """
    with incomplete as (
        select attempt from attempts
        where _seq is null or start is null or stop is null or outcome = 'running'
    ), seen as (
        select attempt, min(epoch_ns(start)) as a, max(epoch_ns(stop)) as b
        from phases where attempt in (select attempt from incomplete) group by attempt
    )
    select a.attempt, a._key::bigint as id, a.worker,
           -- Without rows of the scheduler an attempt starts with the first phase that is known.
           case when a._seq is null then least(epoch_ns(a.start), s.a)
                else coalesce(epoch_ns(a.start), s.a) end as start,
           coalesce(epoch_ns(a.stop), s.b) as stop,
           -- The last submission of its task before it was assigned to the worker.
           coalesce(epoch_ns(a.start), -1) as assigned,
           coalesce(a.outcome in ('memory', 'erred')
                    or (a.outcome = 'running' and s.b is not null), false) as done,
           coalesce(a.outcome in ('memory', 'erred', 'retried'), false) as reported,
           a._seq is not null as scheduled
    from attempts a
    left join seen s on s.attempt = a.attempt
    where (a.start is not null or s.a is not null) and (a.stop is not null or s.b is not null)
"""

_LIVES = """
    select _key::bigint as id, epoch_ns(_since) as submitted, false as renewed, client
    from tasks where _since is not null
    union all
    -- A result that was lost or released, and is needed again: nobody waited for it before.
    select _key, epoch_ns(time), true, null from _renewals
"""

_EDGES = "select _key::bigint as task, _dependency::bigint as dependency from graph_edges"

_CAUSE = """
    case when action in ('compute', 'executing') and r.attempt is not null then 'transfer'
         when action in ('transfer', 'deserialize') then action
         when action like 'disk%' then 'disk' else 'compute' end
"""

#: Phases of some attempts.
_PHASES = f"""
    select p.attempt, {_CAUSE} as cause, epoch_ns(start) as start, epoch_ns(stop) as stop
    from phases p left join _shuffle_barriers r on r.attempt = p.attempt
    where stop > start and p.attempt in (select unnest($1::bigint[]))
    order by p.attempt, start, stop
"""  # noqa: S608  no value of the record

#: Phases in which a thread was busy.
_BUSY = f"""
    select worker, epoch_ns(start) as start, epoch_ns(stop) as stop
    from phases p left join _shuffle_barriers r on r.attempt = p.attempt
    where stop > start and {_CAUSE} <> 'transfer'
"""  # noqa: S608  no value of the record

#: Functions that ran on the threads of some workers, in order of these and of their starts. What a
#: task waits for before its function runs, such as results on disk, is no use of a thread by it.
_THREAD_USE = """
    select w.number, coalesce(p.thread, -1) as thread, p.attempt,
           epoch_ns(p.start) as start, epoch_ns(p.stop) as stop
    from phases p
    join (select unnest($1::varchar[]) as worker, unnest(range(len($1))) as number) w
      on w.worker = p.worker
    where p.stop > p.start and p.action in ('compute', 'executing')
    order by w.number, start, stop, attempt
"""

#: Intervals in which a task was in the scheduler's states queued or no-worker.
_QUEUED = """
    select _key::bigint as id, start, stop, unplaceable from _queued
    where _key in (select _key from attempts where attempt in (select unnest($1::bigint[])))
    order by start
"""

_WAITS = """
    select attempt, cause, start, stop from _waits
    where attempt in (select unnest($1::bigint[])) order by attempt, start
"""

_NAMES = """
    with chosen as (
        select attempt, _key, key, key_type, coalesce(prefix, '(unknown)') as prefix, worker, thread
        from attempts where attempt in (select unnest($1::bigint[]))
    ), written as (
        select t._key, arg_min(g.file, g.time) as file, arg_min(g.line, g.time) as line,
               arg_min(g.code, g.time) as code
        from graph_tasks t join graphs g on g.submission = t.submission
        where t._key in (select _key from chosen) and g.line is not null group by t._key
    )
    select c.* exclude (_key), w.file, w.line, w.code
    from chosen c left join written w on w._key = c._key
"""

#: Number of threads of each worker, null if it is unknown.
_THREADS = """
    select worker, max(nthreads) as n from (
        select worker, nthreads from workers
        union all select distinct worker, null from phases
        union all select distinct worker, null from _waits
        union all select distinct worker, null from _other_executions
    ) where worker is not null group by worker order by worker
"""

_LOOP_THREADS = """
    select p.address as worker, t.thread from process_threads t join processes p using (process)
    where t.purpose = 'event loop' and p.role = 'worker' order by all
"""

_UNDER_WAY = """
    select epoch_ns(_since) as start,
           coalesce(epoch_ns(coalesce(finished, forgotten)), 9223372036854775807) as stop
    from tasks where _since is not null order by start
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

    Columns of all attempts have their times and tasks. Names, phases and waits are those of the
    attempts on the path: see `read`.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        workers, self._clients = Names(), Names()
        found = columns(run, _ATTEMPTS, names={"worker": workers})
        numbers = found.pop("attempt")
        if (np.diff(numbers) <= 0).any():
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
            for name in found:
                found[name] = found[name][order]
        self._numbers = numbers
        self.start = found["start"]
        # Start and stop may be of two clocks that disagree: no attempt ends before it starts.
        self.stop = np.maximum(found.pop("stop"), self.start)
        #: Attempts with a result, and those that were executing at the end of the record.
        self.done = found["done"]
        #: Attempts whose end the worker reported to the scheduler.
        self.reported = found["reported"]
        #: Attempts of which the scheduler has rows.
        self.scheduled = found["scheduled"]
        self._worker, self._workers = found["worker"], [*workers.names, None]
        ids = found.pop("id")
        #: When the task was submitted, or needed again after its result was lost or released; -1 if
        #: that is unknown.
        self.submitted, self.renewed, self._client = self._lives(ids, found.pop("assigned"))
        self._ids, task = np.unique(ids, return_inverse=True)
        del ids
        self.task = task.astype(np.int32)
        by_stop = np.lexsort((self.stop, self.task)).astype(np.int32)
        bounds = np.searchsorted(self.task[by_stop], np.arange(len(self._ids) + 1, dtype=np.int32))
        #: Attempts at each task, in order of their ends.
        self.of_task = Groups(by_stop, bounds)
        self._path: list[int] = []

    def __len__(self) -> int:
        return len(self.start)

    def _lives(self, ids: Ints, assigned: Ints) -> tuple[Ints, Array, Ints]:
        """Return the last submission of each attempt's task before it was assigned to a worker.

        Its time, whether the task was needed again, and the number of the client that submitted it.
        """
        found = columns(self._run, _LIVES, names={"client": self._clients})
        order = np.lexsort((found["submitted"], found["id"]))
        of, submitted, renewed = (found[name][order] for name in ("id", "submitted", "renewed"))
        first = np.searchsorted(of, ids, side="left")
        last = np.searchsorted(of, ids, side="right") - 1
        late = np.arange(len(ids) if len(of) else 0)
        while len(late):
            late = late[(last[late] >= first[late]) & (submitted[last[late]] > assigned[late])]
            last[late] -= 1
        known = last >= first
        times = np.full(len(ids), -1, np.int64)
        times[known] = submitted[last[known]]
        again = np.zeros(len(ids), np.bool_)
        again[known] = renewed[last[known]]
        clients = np.full(len(ids), -1, np.int32)
        clients[known] = found["client"][order][last[known]]
        return times, again, clients

    def client(self, attempt: int) -> str | None:
        """Return the client that submitted the task of an attempt; None if it is unknown."""
        number = int(self._client[attempt])
        return None if number < 0 else self._clients.names[number]

    def worker(self, attempt: int) -> str | None:
        """Return the worker of an attempt."""
        name: str | None = self._workers[self._worker[attempt]]
        return name

    @cached_property
    def dependencies(self) -> tuple[Groups, Ints]:
        """Edges of the graph by task, and for each edge the dependency."""
        parts = [(np.empty(0, np.int32), np.empty(0, np.int32))]
        for batch in self._run.batches(_EDGES):
            part = arrays(batch)
            task, known = self._tasks(part["task"])
            needs, needed = self._tasks(part["dependency"])
            known &= needed
            parts.append((task[known].astype(np.int32), needs[known].astype(np.int32)))
        task, needs = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Groups.of(task, len(self._ids)), needs

    def _tasks(self, ids: Ints) -> tuple[Ints, Array]:
        """Return the numbers of tasks by the ids of their keys, and which of them have attempts."""
        if not len(self._ids):
            return ids * 0, np.zeros(len(ids), np.bool_)
        found = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return found, self._ids[found] == ids

    def read(self, attempts: list[int]) -> None:
        """Choose the attempts on the path, whose names, phases and waits are read.

        Parameters
        ----------
        attempts : list of int
            Indices of the attempts.
        """
        self._path = self._numbers[attempts].tolist()

    def _of_path(self, query: str) -> pa.Table:
        return self._run.arrow(query, self._path)

    def _rows(self, found: pa.Table) -> dict[int, slice]:
        """Return the rows of each attempt, of rows in order of attempts."""
        numbers = _ints(found, "attempt")
        first = np.flatnonzero(np.diff(numbers, prepend=-1)) if len(numbers) else numbers
        ends = [*first[1:].tolist(), len(numbers)]
        index = np.searchsorted(self._numbers, numbers[first]).tolist()
        return dict(zip(index, map(slice, first.tolist(), ends), strict=True))

    @cached_property
    def names(self) -> dict[int, dict[str, Any]]:
        """Numbers, keys, prefixes and workers of attempts on the path."""
        found = self._of_path(_NAMES)
        index = np.searchsorted(self._numbers, _ints(found, "attempt")).tolist()
        return dict(zip(index, found.to_pylist(), strict=True))

    @cached_property
    def _phases(self) -> tuple[dict[int, slice], list[str], list[int], list[int]]:
        found = self._of_path(_PHASES)
        start, stop = (_ints(found, name).tolist() for name in ("start", "stop"))
        return self._rows(found), found["cause"].to_pylist(), start, stop

    def phases(self, attempt: int) -> list[tuple[str, int, int]]:
        """Return the phases of an attempt on the path: causes, starts and stops."""
        rows, causes, starts, stops = self._phases
        of_attempt = rows.get(attempt, slice(0))
        return list(zip(causes[of_attempt], starts[of_attempt], stops[of_attempt], strict=True))

    def busy_threads(self, workers: list[str]) -> dict[str, dict[str, Array]]:
        """Return the executions on the threads of some workers, in order of their starts.

        Parameters
        ----------
        workers : list of str
            Addresses of the workers.

        Returns
        -------
        dict
            Columns ``thread`` (-1 if it is unknown), ``attempt``, ``start`` and ``stop`` by worker,
            without workers that have no execution.
        """
        parts = map(arrays, self._run.batches(_THREAD_USE, workers))
        return {workers[number]: rows for number, rows in groups(parts, "number")}

    def names_of(self, numbers: list[int]) -> dict[int, dict[str, Any]]:
        """Return keys, prefixes and workers of any attempts, by their numbers."""
        return {row["attempt"]: row for row in self._run.rows(_NAMES, numbers)}

    @cached_property
    def opening(self) -> dict[int, int]:
        """Nanoseconds that attempts spent opening the file of their chunk, where known."""
        found = self._of_path(
            "select attempt, (open_seconds * 1e9)::bigint as ns from chunks "
            "where open_seconds > 0 and attempt in (select unnest($1::bigint[]))"
        )
        rows = np.searchsorted(self._numbers, _ints(found, "attempt"))
        return dict(zip(rows.tolist(), _ints(found, "ns").tolist(), strict=True))

    @cached_property
    def _queued(self) -> tuple[dict[int, list[int]], Ints, Ints, Array]:
        found = self._of_path(_QUEUED)
        task, _ = self._tasks(_ints(found, "id"))
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(task.tolist()):
            rows.setdefault(number, []).append(row)
        unplaceable = found["unplaceable"].to_numpy(zero_copy_only=False).astype(np.bool_)
        return rows, _ints(found, "start"), _ints(found, "stop"), unplaceable

    def queued(self, attempt: int) -> tuple[Ints, Ints, Array]:
        """Return when the task of an attempt on the path was in queued and no-worker.

        The intervals' starts, stops, and whether the task was in no-worker.
        """
        rows, *values = self._queued
        of_task = rows.get(int(self.task[attempt]), [])
        starts, stops, unplaceable = (each[of_task] for each in values)
        return starts, stops, unplaceable

    @cached_property
    def _waits(self) -> tuple[dict[int, slice], Array, Ints, Ints]:
        found = self._of_path(_WAITS)
        causes = np.array(found["cause"].to_pylist(), np.object_)
        return self._rows(found), causes, _ints(found, "start"), _ints(found, "stop")

    def waits(self, attempt: int, cause: str) -> tuple[Ints, Ints]:
        """Return the disjoint intervals in which an attempt on the path waited, for one cause."""
        groups, causes, start, stop = self._waits
        rows = groups.get(attempt)
        if rows is None:
            return NONE
        chosen = causes[rows] == cause
        return start[rows][chosen], stop[rows][chosen]

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
    def interruptions(self) -> Interruptions:
        """Collections of the garbage collector, and blocks of event loops."""
        return Interruptions(self._run)

    @cached_property
    def loop_threads(self) -> dict[str, list[int]]:
        """Identities of the threads of workers' event loops, by worker."""
        found: dict[str, list[int]] = {}
        for row in self._run.rows(_LOOP_THREADS):
            found.setdefault(row["worker"], []).append(row["thread"])
        return found

    @cached_property
    def under_way(self) -> tuple[Ints, Ints]:
        """Disjoint intervals in which the scheduler had unfinished tasks, in order."""
        start, stop = NONE
        for batch in self._run.batches(_UNDER_WAY):
            part = arrays(batch)
            # The parts are in order: only the last interval so far can reach into the next part.
            joined = merged(*_joined([(start[-1:], stop[-1:]), (part["start"], part["stop"])]))
            start, stop = _joined([(start[:-1], stop[:-1]), joined])
        return start, stop

    @cached_property
    def full(self) -> dict[str, tuple[Ints, Ints]]:
        """Intervals in which all threads of a worker were busy, by worker."""
        return self._full(_BUSY)

    @cached_property
    def full_with_others(self) -> dict[str, tuple[Ints, Ints]]:
        """The same with the tasks of other clients; empty if these are not left out."""
        others = "select worker, start, stop from _other_executions"
        if not self._run.rows(f"select 1 from ({others}) limit 1"):  # noqa: S608  ours
            return {}
        return self._full(f"{_BUSY} union all {others}")

    @cached_property
    def _full_or_fetching(self) -> dict[str, tuple[Ints, Ints]]:
        """Intervals in which as many tasks as a worker has threads computed or fetched."""
        waits = "select worker, start, stop from _waits where cause <> 'waiting for a resource'"
        return self._full(f"{_BUSY} union all {waits}")

    def _full(self, busy: str) -> dict[str, tuple[Ints, Ints]]:
        """Return when all threads of each worker were busy, from a query for busy intervals."""
        threads = {row["worker"]: row["n"] for row in self._run.rows(_THREADS)}
        names = list(threads)
        query = f"""
            select w.number, b.start, b.stop from ({busy}) b
            join (select unnest($1::varchar[]) as worker, unnest(range(len($1))) as number) w
              on w.worker = b.worker
            order by w.number
        """  # noqa: S608  ours
        parts = map(arrays, self._run.batches(query, names))
        return {
            names[number]: full(rows["start"], rows["stop"], threads[names[number]])
            for number, rows in groups(parts, "number")
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
