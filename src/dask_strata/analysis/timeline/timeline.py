"""All attempts as bars of a timeline, with their threads, times, prefixes and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dask_strata.analysis.series.columns import Array, Index, Ints, Names, arrays, columns
from dask_strata.analysis.worker_ends import EXPLAINED, words_of
from dask_strata.run.clients import clients

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Outcomes of attempts; the page's data has their index in this tuple.
OUTCOMES = ("memory", "erred", "retried", "rescheduled", "released", "lost", "running")

#: Phases other than computing; the page's data has their index too.
PHASES = ("transfer", "deserialize", "disk-read", "disk-write", "other")

#: A bar lasts as long as the function ran, or, if that is unknown, as long as the attempt.
_BARS = """
    select attempt, _key::bigint as id, worker, coalesce(thread, 9223372036854775807) as thread,
           coalesce(epoch_ns(start), epoch_ns(stop), -1) as t0,
           coalesce(epoch_ns(stop), epoch_ns(start), -1) as t1,
           coalesce(prefix, '(unknown)') as prefix, outcome, client, span,
           coalesce(nbytes, -1) as nbytes,
           coalesce(read_bytes, -1) as read_bytes,
           coalesce((cpu_seconds * 1e6)::bigint, -1) as cpu,
           coalesce((other_cpu_seconds * 1e6)::bigint, -1) as other_cpu
    from attempts
"""

_RAN = """
    select attempt, coalesce(epoch_ns(start), $1) as start, coalesce(epoch_ns(stop), -$1) as stop
    from phases where action in ('compute', 'executing')
"""

_OTHERS = """
    -- Scheduled attempts have the numbers of the scheduler's attempts.
    select attempt, action, epoch_ns(start) as t0, epoch_ns(stop) as t1
    from phases where action not in ('compute', 'executing') and action not like 'disk%'
                  and stop > start
    union all by name
    select number as attempt, case when spill then action else 'deserialize' end as action,
           start as t0, stop as t1
    from _disk_phases where number is not null
"""

_KEYS = "select _key::bigint as id, key, key_type from _keys"

_EDGES = "select distinct _key::bigint as task, _dependency::bigint as dependency from graph_edges"

#: Most names of spans that attempts are assigned to.
_MOST_SPANS = 2_000

_SPANS = """
    select name from spans where name is not null group by name
    order by min(enqueued), name limit ?
"""

_EXCEPTIONS = "select attempt, exception as text from attempts where exception is not null"

_ENDED = """
    select attempt, worker, stimulus_id as text from attempts
    where worker_end is not null and stimulus_id is not null
"""

_FILES = """
    with firsts as (select _key, min(attempt) as task from attempts group by _key)
    select u._key::bigint as id, u.* exclude (_key)
    from _file_uses u join firsts t on t._key = u._key
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
    the index of the key in the timeline's `keys`, `client` and `span` those in its `clients` and
    `spans`, `outcome` that in `OUTCOMES`, and `ran` is 1 if the bar is the time in the task's
    function.
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
    span: Ints

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
    #: Names of spans; attempts in none of them have the index after the last.
    spans: tuple[str, ...]
    bars: Bars
    parts: Parts
    #: Key and type of the key of each task; None if they were not read.
    keys: pa.Table | None
    n_tasks: int
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


def timeline(run: Run, *, edges: bool = True, files: int = 0, keys: int | None = None) -> Timeline:
    """Return the timeline of a run.

    Parameters
    ----------
    run : Run
        The run.
    edges : bool, optional
        Whether to read the edges of the graph.
    files : int, optional
        Most files of tasks to read.
    keys : int, optional
        Most attempts with which to read the keys of tasks; by default keys are always read.
    """
    names = {name: Names() for name in ("worker", "prefix", "outcome", "client", "span")}
    found = _attempts(run, names)
    bounds = run.rows("select epoch_ns(first) as a, epoch_ns(last) as b from _bounds")[0]
    times = [bounds["a"], bounds["b"]] if bounds["a"] is not None else []
    if len(found["t0"]):
        times += [int(found["t0"].min()), int(found["t1"].max())]
    origin = min(times, default=0)
    for name in ("t0", "t1"):
        found[name] -= origin
    prefix, prefixes = _by_first(found.pop("prefix"), names["prefix"].names)
    by_id = {each.client: each.name for each in clients(run)}
    spans = tuple(row["name"] for row in run.rows(_SPANS, _MOST_SPANS))
    index = Index(found.pop("attempt"))
    ids, first, task = np.unique(found.pop("id"), return_index=True, return_inverse=True)
    # Number tasks in order of their first bar: differences between neighbours compress well.
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    bars = Bars(
        row=found["row"],
        start=found["t0"],
        stop=found["t1"],
        prefix=prefix,
        outcome=_codes(names["outcome"], OUTCOMES)[found["outcome"]],
        ran=found["ran"],
        nbytes=found["nbytes"],
        read_bytes=found["read_bytes"],
        cpu=found["cpu"],
        other_cpu=found["other_cpu"],
        task=number[task],
        client=_codes(names["client"], (*by_id, ""))[found["client"]],
        span=_codes(names["span"], (*spans, ""))[found["span"]],
    )
    rows = _rows(run, found, names["worker"].names)
    del found, task
    tasks = Index(ids)
    exceptions = _texts(run, _EXCEPTIONS, index)
    phrases = {(e["worker"], e["stimulus_id"]): words_of(e) for e in run.rows(EXPLAINED)}
    uses = run.rows(_FILES, files + 1)
    with_keys = keys is None or len(bars) <= keys
    return Timeline(
        origin=origin,
        span=max(times, default=0) - origin,
        rows=rows,
        prefixes=prefixes,
        clients=tuple(by_id.values()),
        spans=spans,
        bars=bars,
        parts=_parts(run, index, origin),
        keys=_keys(run, ids[order]) if with_keys else None,
        n_tasks=len(ids),
        exceptions={i: row["text"] for i, row in exceptions},
        worker_ends={
            i: phrases[row["worker"], row["text"]] for i, row in _texts(run, _ENDED, index)
        },
        edges=_edges(run, tasks, number) if edges else (_NONE, _NONE),
        files=_files(uses[:files], tasks, number),
        more_files=len(uses) > files,
    )


_NONE: Ints = np.empty(0, np.int64)


def _attempts(run: Run, names: dict[str, Names]) -> dict[str, Array]:
    """Return the columns of all bars, in order of row and start."""
    narrow = {"nbytes", "read_bytes", "cpu", "other_cpu", *names}
    found = columns(run, _BARS, names=names, narrow=narrow)
    n = len(found["attempt"])
    index = Index(found["attempt"])
    begin, end = np.full(n, _LAST), np.full(n, -_LAST)
    for batch in run.batches(_RAN, _LAST):
        part = arrays(batch)
        at = index.find(part["attempt"])
        np.minimum.at(begin, at[at >= 0], part["start"][at >= 0])
        np.maximum.at(end, at[at >= 0], part["stop"][at >= 0])
    ran = begin < _LAST
    found["t0"][ran] = begin[ran]
    found["t1"][end > -_LAST] = end[end > -_LAST]
    del begin, end, index
    np.maximum(found["t1"], found["t0"], out=found["t1"])
    # Rows are in order of worker and thread, unknown ones last.
    _, thread = np.unique(found["thread"], return_inverse=True)
    by_name = sorted(range(len(names["worker"].names)), key=names["worker"].names.__getitem__)
    rank = np.full(len(by_name) + 1, len(by_name), np.int64)
    rank[by_name] = np.arange(len(by_name))
    found["row"] = rank[found["worker"]] * (int(thread.max(initial=0)) + 1) + thread
    found["ran"] = ran.astype(np.int8)
    order = np.lexsort((found["attempt"], found["t0"], found["row"]))
    order = order[found["t0"][order] >= 0]
    for name in found:
        found[name] = found[name][order]
    found["row"] = (np.cumsum(np.diff(found["row"], prepend=found["row"][:1]) > 0)).astype(np.int32)
    return found


#: Later than all times.
_LAST = 2**62


def _by_first(codes: Array, names: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Return codes in order of their first occurrence, and the names in this order."""
    used, first = np.unique(codes, return_index=True)
    order = used[np.argsort(first)]
    number = np.zeros(len(names) + 1, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number[codes], tuple(names[i] for i in order.tolist())


def _texts(run: Run, query: str, index: Index) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a query about attempts, by the index of the bar."""
    rows = run.rows(query)
    at = index.find(np.array([row["attempt"] for row in rows], np.int64)).tolist()
    return sorted(
        ((i, row) for i, row in zip(at, rows, strict=True) if i >= 0), key=lambda pair: pair[0]
    )


def _keys(run: Run, ids: Ints) -> pa.Table:
    """Return the texts and types of keys."""
    found = run.arrow(_KEYS)
    at = pa.array(Index(_ints(found["id"])).find(ids))
    types = found["key_type"].cast(pa.string()).dictionary_encode().take(at)
    texts = found["key"].cast(pa.string())
    del found  # of a large run, it takes as much memory as the texts
    return pa.table({"key": texts.take(at), "key_type": types})


def _rows(run: Run, found: dict[str, Array], workers: list[str]) -> tuple[Row, ...]:
    firsts = np.unique(found["row"], return_index=True)[1]
    known = {r["worker"]: r for r in run.rows(_WORKERS)}
    nothing = {"name": None, "host": None, "pid": None}
    rows = []
    for code, thread in zip(
        found["worker"][firsts].tolist(), found["thread"][firsts].tolist(), strict=True
    ):
        worker = workers[code] if code >= 0 else None
        facts = known.get(worker, nothing)
        name = facts["name"] or ""
        number = None if thread == _NO_THREAD else thread
        rows.append(Row(worker or "(unknown)", name, number, facts["host"], facts["pid"]))
    return tuple(rows)


_NO_THREAD = 2**63 - 1

#: An address may have several processes, one after the other: then the pid is unknown.
_WORKERS = """
    select w.worker, any_value(w.name) as name, any_value(w.host) as host,
           case when count(distinct p.pid) = 1 then any_value(p.pid) end as pid
    from workers w left join processes p on p.process = w.process group by w.worker
"""


def _files(
    rows: list[dict[str, Any]], tasks: Index, number: Ints
) -> tuple[Ints, list[dict[str, Any]]]:
    """Return the files of tasks that have a bar, by the index of the task."""
    at = tasks.find(np.array([row.pop("id") for row in rows], np.int64))
    drawn = np.flatnonzero(at >= 0)
    index = number[at[drawn]].astype(np.int64)
    order = np.argsort(index, kind="stable")
    return index[order], [rows[i] for i in drawn[order].tolist()]


def _parts(run: Run, index: Index, origin: int) -> Parts:
    actions = Names()
    found = columns(run, _OTHERS, names={"action": actions})
    bar = index.find(found.pop("attempt"))
    order = np.lexsort((found["t0"], bar))
    order = order[bar[order] >= 0]
    return Parts(
        bar=bar[order],
        kind=_codes(actions, PHASES)[found["action"][order]],
        start=found["t0"][order] - origin,
        stop=found["t1"][order] - origin,
    )


def _edges(run: Run, tasks: Index, number: Ints) -> tuple[Ints, Ints]:
    found = columns(run, _EDGES)
    needs, needed = (tasks.find(found[name]) for name in ("task", "dependency"))
    known = (needs >= 0) & (needed >= 0)
    needs, needed = number[needs[known]], number[needed[known]]
    order = np.lexsort((needed, needs))
    return needs[order], needed[order]


def _codes(names: Names, known: tuple[str, ...]) -> Array:
    """Return the index in `known` for each number of a name; that of the last for others."""
    places = {name: i for i, name in enumerate(known)}
    others = len(known) - 1
    return np.array([*(places.get(name, others) for name in names.names), others], np.int32)


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)
