"""All attempts as bars of a timeline, with their threads, times, prefixes and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.worker_ends import EXPLAINED, words_of
from dask_strata.run.clients import clients

if TYPE_CHECKING:
    from dask_strata.run import Run

Ints = npt.NDArray[np.int64]

#: Outcomes of attempts; the page's data has their index in this tuple.
OUTCOMES = ("memory", "erred", "retried", "rescheduled", "released", "lost", "running")

#: Phases other than computing; the page's data has their index too.
PHASES = ("transfer", "deserialize", "disk-read", "disk-write", "other")

#: A bar lasts as long as the function ran, or, if that is unknown, as long as the attempt.
_BARS = """
    with ran as (
        select attempt, min(epoch_ns(start)) as a, max(epoch_ns(stop)) as b
        from phases where action in ('compute', 'executing') group by attempt
    ), bars as (
        select a.*, coalesce(r.a, epoch_ns(a.start), epoch_ns(a.stop)) as t0,
               coalesce(r.b, epoch_ns(a.stop), epoch_ns(a.start)) as t1, r.a is not null as ran
        from attempts a left join ran r on r.attempt = a.attempt
    )
    select attempt, dense_rank() over (order by worker, thread) - 1 as row, worker, thread,
           t0, greatest(t0, t1) as t1, coalesce(prefix, '(unknown)') as prefix, outcome, ran,
           client, key, key_type, min(attempt) over (partition by _key) as task,
           coalesce(nbytes, -1) as nbytes,
           coalesce(read_bytes, -1) as read_bytes,
           coalesce((cpu_seconds * 1e6)::bigint, -1) as cpu,
           coalesce((other_cpu_seconds * 1e6)::bigint, -1) as other_cpu, exception,
           case when worker_end is not null then stimulus_id end as ended_by
    from bars where t0 is not null order by row, t0, attempt
"""

_OTHERS = """
    -- Scheduled attempts have the numbers of the scheduler's attempts.
    select attempt, action, epoch_ns(start) as t0, epoch_ns(stop) as t1
    from phases where action not in ('compute', 'executing') and action not like 'disk%'
                  and stop > start
    union all by name
    select number as attempt, case when spill then action else 'deserialize' end as action,
           start as t0, stop as t1
    from _disk_phases
    order by attempt, t0
"""

_EDGES = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select distinct t.task, d.task as dependency
    from graph_edges e
    join firsts t on t._key = e._key
    join firsts d on d._key = e._dependency
    order by 1, 2
"""

_FILES = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select t.task, u.* exclude (_key) from _file_uses u join firsts t on t._key = u._key
    order by t.task, u.uri, u.first, u.last limit ?
"""


@dataclass(frozen=True)
class Row:
    """A thread of a worker; parts that are unknown are None."""

    worker: str
    name: str
    thread: int | None
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True)
class Bars:
    """Attempts in order of row and start.

    Times are ns since the timeline's origin. `cpu` and `other_cpu` are the CPU time of the
    attempt's thread and of other threads of its process, in µs. Unknown numbers are -1. `task` is
    the index of the key in the timeline's `keys`, `client` that in its `clients`, `outcome` that in
    `OUTCOMES`, and `ran` is 1 if the bar is the time in the task's function.
    """

    row: Ints
    start: Ints
    stop: Ints
    prefix: Ints
    outcome: Ints
    ran: Ints
    nbytes: Ints
    read_bytes: Ints
    cpu: Ints
    other_cpu: Ints
    task: Ints
    client: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Parts:
    """Phases other than computing; `bar` is the index of their attempt in the bars."""

    bar: Ints
    kind: Ints
    start: Ints
    stop: Ints


@dataclass(frozen=True)
class Timeline:
    """The data of a timeline; times are in ns, the origin since the epoch."""

    origin: int
    span: int
    rows: tuple[Row, ...]
    prefixes: tuple[str, ...]
    #: Names of the clients; attempts whose client is not on record have the index after the last.
    clients: tuple[str, ...]
    bars: Bars
    parts: Parts
    #: Key and type of the key of each task.
    keys: pa.Table
    #: Exceptions by the index of their attempt in the bars.
    exceptions: dict[int, str]
    #: How workers ended, by the index of an attempt in the bars that ended with its worker.
    worker_ends: dict[int, str]
    #: Edges of the graph: indices of tasks and, for each, of a task that it depends on.
    edges: tuple[Ints, Ints]
    #: Files and ranges of tasks: indices of the tasks, and for each a row as of `Task.files`.
    files: tuple[Ints, list[dict[str, Any]]]
    #: Whether there are more files than were asked for.
    more_files: bool


def timeline(run: Run, *, edges: bool = True, files: int = 0) -> Timeline:
    """Return the timeline of a run.

    Parameters
    ----------
    run : Run
        The run.
    edges : bool, optional
        Whether to read the edges of the graph.
    files : int, optional
        Most files of tasks to read.
    """
    found = run.arrow(_BARS)
    bounds = run.rows("select epoch_ns(first) as a, epoch_ns(last) as b from _bounds")[0]
    start, stop = _ints(found["t0"]), _ints(found["t1"])
    others = run.arrow(_OTHERS)
    times = [bounds["a"], bounds["b"]] if bounds["a"] is not None else []
    times += [int(start.min()), int(stop.max())] if len(start) else []
    origin = min(times, default=0)
    prefix = found["prefix"].cast(pa.string()).combine_chunks().dictionary_encode()
    by_id = {each.client: each.name for each in clients(run)}
    attempt, ids = _ints(found["attempt"]), _ints(found["task"])
    tasks, first, task = np.unique(ids, return_index=True, return_inverse=True)
    # Number tasks in order of their first bar: differences between neighbours compress well.
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    bars = Bars(
        row=_ints(found["row"]),
        start=start - origin,
        stop=stop - origin,
        prefix=_ints(prefix.indices),
        outcome=_codes(found["outcome"], OUTCOMES),
        ran=_ints(found["ran"]),
        nbytes=_ints(found["nbytes"]),
        read_bytes=_ints(found["read_bytes"]),
        cpu=_ints(found["cpu"]),
        other_cpu=_ints(found["other_cpu"]),
        task=number[task].astype(np.int64),
        client=_codes(found["client"], (*by_id, "")),
    )
    exceptions = _valid(found, "exception")
    ended = _valid(found, "ended_by")
    workers = found["worker"].take(pa.array(list(ended), pa.int64())).to_pylist()
    phrases = {(e["worker"], e["stimulus_id"]): words_of(e) for e in run.rows(EXPLAINED)}
    uses = run.rows(_FILES, files + 1)
    return Timeline(
        origin=origin,
        span=max(times, default=0) - origin,
        rows=_rows(run, found),
        prefixes=tuple(prefix.dictionary.to_pylist()),
        clients=tuple(by_id.values()),
        bars=bars,
        parts=_parts(others, attempt, origin),
        keys=found.select(["key", "key_type"]).take(pa.array(first[order], pa.int64())),
        exceptions=exceptions,
        worker_ends={
            i: phrases[worker, ended[i]] for i, worker in zip(ended, workers, strict=True)
        },
        edges=_edges(run, tasks, number) if edges else (_NONE, _NONE),
        files=_files(uses[:files], tasks, number),
        more_files=len(uses) > files,
    )


_NONE: Ints = np.empty(0, np.int64)


def _valid(found: pa.Table, column: str) -> dict[int, str]:
    """Return the values of a column that are not null, by their index."""
    where = np.flatnonzero(pc.is_valid(found[column]).to_numpy(zero_copy_only=False))
    return dict(zip(where.tolist(), found[column].take(where).to_pylist(), strict=True))


def _rows(run: Run, found: pa.Table) -> tuple[Row, ...]:
    row = _ints(found["row"])
    firsts = np.unique(row, return_index=True)[1]
    known = {r["worker"]: r for r in run.rows(_WORKERS)}
    nothing = {"name": None, "host": None, "pid": None}
    threads = found.select(["worker", "thread"]).take(pa.array(firsts, pa.int64())).to_pylist()
    rows = []
    for r in threads:
        facts = known.get(r["worker"], nothing)
        name = facts["name"] or ""
        rows.append(Row(r["worker"] or "(unknown)", name, r["thread"], facts["host"], facts["pid"]))
    return tuple(rows)


#: An address may have several processes, one after the other: then the pid is unknown.
_WORKERS = """
    select w.worker, any_value(w.name) as name, any_value(w.host) as host,
           case when count(distinct p.pid) = 1 then any_value(p.pid) end as pid
    from workers w left join processes p on p.process = w.process group by w.worker
"""


def _files(
    rows: list[dict[str, Any]], tasks: Ints, number: Ints
) -> tuple[Ints, list[dict[str, Any]]]:
    """Return the files of tasks that have a bar, by the index of the task."""
    ids = np.array([row["task"] for row in rows], np.int64)
    at = np.minimum(np.searchsorted(tasks, ids), max(len(tasks) - 1, 0))
    drawn = np.flatnonzero(tasks[at] == ids) if len(tasks) else _NONE
    index = number[at[drawn]].astype(np.int64)
    order = np.argsort(index, kind="stable")
    return index[order], [rows[i] for i in drawn[order].tolist()]


def _parts(others: pa.Table, attempt: Ints, origin: int) -> Parts:
    by_attempt = np.argsort(attempt, kind="stable")
    wanted = _ints(others["attempt"])
    index = np.searchsorted(attempt[by_attempt], wanted)
    known = index < len(attempt)
    bar = by_attempt[index[known]]
    order = np.argsort(bar, kind="stable")
    return Parts(
        bar=bar[order],
        kind=_codes(others["action"], PHASES)[known][order],
        start=(_ints(others["t0"])[known] - origin)[order],
        stop=(_ints(others["t1"])[known] - origin)[order],
    )


def _edges(run: Run, tasks: Ints, number: Ints) -> tuple[Ints, Ints]:
    found = run.arrow(_EDGES)
    ends = []
    known = np.ones(len(found), bool)
    for name in ("task", "dependency"):
        ids = _ints(found[name])
        index = np.minimum(np.searchsorted(tasks, ids), max(len(tasks) - 1, 0))
        known &= tasks[index] == ids if len(tasks) else False
        ends.append(index)
    needs, needed = (number[end[known]] for end in ends)
    order = np.lexsort((needed, needs))
    return needs[order], needed[order]


def _codes(column: pa.ChunkedArray, names: tuple[str, ...]) -> Ints:
    """Return the index of each value in `names`; that of the last name for other values."""
    index = pc.index_in(column.cast(pa.string()), pa.array(names))
    return _ints(index.fill_null(len(names) - 1))


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
