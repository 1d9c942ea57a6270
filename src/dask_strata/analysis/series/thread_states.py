"""States of threads from each moment to the next: on how many a task ran, why the others waited.

The rows of one worker are computed at a time, so that the memory does not grow with the number of
workers. See `breakdown` for the meaning of the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dask_strata.analysis.series.columns import Array, Ints, Names, arrays, columns, groups

if TYPE_CHECKING:
    from dask_strata.run import Run

    Floats = npt.NDArray[np.float64]

#: Kinds of intervals; queries have their index in this tuple.
INTERVALS = (
    "compute",
    "deserialize",
    "disk",
    "other clients",
    "spill",
    "transfer",
    "waiting to fetch",
    "waiting for a resource",
    "paused worker",
    "blocked event loop",
    "assigned",
    "silent worker",
)

#: Kinds of thread time that belongs to no prefix.
_OF_NO_PREFIX = ("paused worker", "blocked event loop", "silent worker", "other clients")

#: The share of a thread that an interval has, by the kinds of intervals that belong to a prefix.
_AMOUNTS = {
    "compute": "ran",
    "deserialize": "ran",
    "disk": "collected",
    "spill": "spilled",
    "transfer": "fetched",
    "waiting to fetch": "turned",
    "waiting for a resource": "constrained",
}

#: One row for each time that a worker was connected.
_LIFETIMES = """
    select row_number() over (order by w.worker, w.start, w.stop) as lifetime,
           w.worker, w.nthreads,
           greatest(epoch_ns(coalesce(w.start, b.first)), epoch_ns(b.first)) as t0,
           least(epoch_ns(coalesce(w.stop, b.last)), epoch_ns(b.last)) as t1
    from workers w cross join _bounds b
    -- Skip imported workers that no row mentions.
    where w.worker is not null and (
        w.process is not null or w.n_attempts > 0 or not exists (from imports where kind is null))
"""

_PREFIXES = "select attempt, coalesce(prefix, '(unknown)') as prefix from attempts"

#: Intervals within the lifetimes of workers, in order of these. A spilled result has a prefix
#: instead of an attempt.
_SPANS = f"""
    with lifetimes as materialized ({_LIFETIMES}), blocked as (
        select distinct worker from _worker_conditions where condition = 'blocked event loop'
    ), begun as (
        select attempt, min(epoch_ns(start)) filter (action <> 'transfer') as t from phases
        where worker in (select worker from blocked) group by attempt
    ), intervals as (
        select p.attempt, null as prefix, worker, epoch_ns(start) as a, epoch_ns(stop) as b,
               case when action in ('compute', 'executing') and r.attempt is not null
                    then 'transfer'
                    when action in ('transfer', 'deserialize') then action
                    when action like 'disk%' then 'disk' else 'compute' end as kind
        from phases p left join _shuffle_barriers r on r.attempt = p.attempt
        union all by name
        select attempt, worker, start as a, stop as b, cause as kind from _waits
        union all by name
        -- Tasks that may wait for a blocked event loop: assigned to the worker, and not begun.
        select n.attempt, n.worker, epoch_ns(n.start) as a,
               coalesce(least(f.t, epoch_ns(n.stop)), epoch_ns(b.last)) as b, 'assigned' as kind
        from attempts n semi join blocked w on w.worker = n.worker
        cross join _bounds b left join begun f on f.attempt = n.attempt
        union all by name
        select coalesce(k.prefix, key_prefix(s.key, s.key_type), '(unknown)') as prefix, s.worker,
               epoch_ns(s.time) - (s.seconds * 1e9)::bigint as a,
               epoch_ns(s.time) as b, 'spill' as kind
        from spills s left join _definitions k on k._key = s._key where s.seconds is not null
        union all by name
        select worker, start as a, stop as b, condition as kind from _worker_conditions
        where condition <> 'spill'
        union all by name
        select worker, start as a, stop as b, 'other clients' as kind from _other_executions
    )
    select t.lifetime::int as lifetime, coalesce(i.attempt, -1) as attempt, i.prefix,
           greatest(i.a, t.t0) as a, least(i.b, t.t1) as b,
           (list_position($1::varchar[], i.kind) - 1)::tinyint as kind
    from intervals i join lifetimes t on t.worker = i.worker
    where least(i.b, t.t1) > greatest(i.a, t.t0)
    order by t.lifetime
"""  # noqa: S608  no value of the record


@dataclass(frozen=True)
class WorkerStates:
    """Threads of a worker by state: one number for each step, and a time more than steps.

    `threads` is their number, `computing` of those that run a task's function; `idle` are free and
    wait for nothing on the worker.
    """

    worker: str
    times: Ints
    threads: int
    computing: Array
    idle: Array


@dataclass(frozen=True)
class ThreadStates:
    """States of the threads of all workers.

    Attributes
    ----------
    workers : tuple of WorkerStates
        By worker; a worker that connected again has several.
    total : float
        Thread time of all threads, in ns.
    kinds : dict
        Thread time of kinds that belong to no prefix, in ns.
    prefixes : dict
        Thread time of the others in ns, by prefix and kind of interval.
    """

    workers: tuple[WorkerStates, ...]
    total: float
    kinds: dict[str, float]
    prefixes: dict[tuple[str, str], float]


def thread_states(run: Run) -> ThreadStates:
    """Return the states of all threads of a run.

    Parameters
    ----------
    run : Run
        The run.
    """
    names = Names()
    found = columns(run, _PREFIXES, names={"prefix": names})
    order = np.argsort(found["attempt"], kind="stable")
    attempts = found["attempt"][order]
    of_attempts = np.append(found["prefix"][order], -1).astype(np.int32)
    del found, order
    lifetimes = run.rows(f"{_LIFETIMES} order by lifetime")
    parts = (arrays(batch, {"prefix": names}) for batch in run.batches(_SPANS, list(INTERVALS)))
    of_lifetime = groups(parts, "lifetime")
    number, rows = next(of_lifetime, (0, None))
    sums: dict[int, Floats] = {}
    kinds = dict.fromkeys(_OF_NO_PREFIX, 0.0)
    total, workers = 0.0, []
    for lifetime in lifetimes:
        spans = _NOTHING
        if rows is not None and number == lifetime["lifetime"]:
            of_attempt = np.searchsorted(attempts, rows["attempt"])
            has_prefix = rows["prefix"] >= 0
            rows["prefix"] = np.where(has_prefix, rows["prefix"], of_attempts[of_attempt])
            spans = _separate(rows)
            number, rows = next(of_lifetime, (0, None))
        if lifetime["t1"] <= lifetime["t0"]:
            continue
        steps = _Steps.of(lifetime, spans)
        total += float(steps.dt.sum()) * steps.threads
        for kind in kinds:
            kinds[kind] += float(steps.dt @ steps.states[kind])
        steps.add_prefixes(spans, sums)
        workers.append(steps.of_worker(lifetime["worker"]))
    prefixes = {
        (names.names[prefix], kind): float(amount)
        for prefix, amounts in sums.items()
        for kind, amount in zip(INTERVALS, amounts.tolist(), strict=True)
        if kind in _AMOUNTS and prefix >= 0
    }
    return ThreadStates(tuple(workers), total, kinds, prefixes)


@dataclass(frozen=True)
class _Spans:
    """Intervals on one worker; `kind` is an index in `INTERVALS`, `prefix` a number or -1."""

    a: Ints
    b: Ints
    kind: Array
    prefix: Array


_NO_TIMES = np.empty(0, np.int64)
_NOTHING = _Spans(_NO_TIMES, _NO_TIMES, _NO_TIMES, _NO_TIMES)


def _separate(rows: dict[str, Array]) -> _Spans:
    """Return intervals without overlaps of the transfers of one attempt.

    A task that fetches from several workers at once waits once.
    """
    a, b = rows["a"], rows["b"]
    fetches = np.flatnonzero(rows["kind"] == INTERVALS.index("transfer"))
    if len(fetches) > 1:
        attempt = rows["attempt"][fetches]
        order = np.lexsort((b[fetches], a[fetches], attempt))
        fetches, attempt = fetches[order], attempt[order]
        # Move the transfers of each attempt behind those of the attempt before, so that the
        # latest end so far is one of the same attempt.
        first = np.diff(attempt, prepend=attempt[0] - 1) != 0
        group = np.cumsum(first) - 1
        begin = a[fetches][first]
        lengths = np.maximum.reduceat(b[fetches], np.flatnonzero(first)) - begin
        moved = (np.cumsum(lengths) - lengths - begin)[group]
        latest = np.maximum.accumulate(b[fetches] + moved)
        a = a.copy()
        a[fetches[1:]] = np.maximum(a[fetches], np.concatenate([[0], latest[:-1]]) - moved)[1:]
    kept = b > a
    return _Spans(a[kept], b[kept], rows["kind"][kept], rows["prefix"][kept])


@dataclass(frozen=True)
class _Steps:
    """The states of one worker's threads in each step, and the steps of the intervals."""

    times: Ints
    dt: Ints
    threads: int
    states: dict[str, Array]
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, lifetime: dict[str, Any], spans: _Spans) -> _Steps:
        """Count the intervals of each kind in each step, and divide the threads between them."""
        ends = np.array([lifetime["t0"], lifetime["t1"]])
        times, edges = np.unique(np.concatenate([ends, spans.a, spans.b]), return_inverse=True)
        n = len(spans.a)
        begin, end = edges[2 : n + 2], edges[n + 2 :]
        counts = {}
        for i, kind in enumerate(INTERVALS):
            of_kind = spans.kind == i
            starts, stops = (
                np.bincount(edge[of_kind], minlength=len(times)) for edge in (begin, end)
            )
            counts[kind] = np.cumsum(starts - stops)[:-1]
        c, s, k, o, g, x, f, r, p, stall, q, z = (counts[kind] for kind in INTERVALS)
        busy = c + s + k + o
        threads = lifetime["nthreads"]
        if threads is None:  # use the most that were ever busy at once
            threads = max(int(busy.max()), 1)
        running = np.where(busy > threads, threads / np.maximum(busy, 1), 1.0)
        free = np.maximum(threads - busy, 0)
        # One event loop spills: in the thread of the task that it collects, else in a free one.
        in_free = np.where((g > 0) & (k == 0), np.minimum(free, 1), 0)
        spilling = np.where((g > 0) & (k > 0), k * running, in_free)
        rest = free - in_free
        fetching = np.minimum(rest, x)
        rest = rest - fetching
        paused = np.where(p > 0, rest, 0)
        rest = rest - paused
        turning = np.minimum(rest, f)
        rest = rest - turning
        constrained = np.minimum(rest, r)
        rest = rest - constrained
        stalled = np.where(stall > 0, np.minimum(rest, np.maximum(q - x - f - r, 0)), 0)
        rest = rest - stalled
        silent = np.where(z > 0, rest, 0)
        states = {
            "ran": running,
            "collected": np.where(g > 0, 0, running),
            "spilled": spilling / np.maximum(g, 1),
            "fetched": fetching / np.maximum(x, 1),
            "turned": turning / np.maximum(f, 1),
            "constrained": constrained / np.maximum(r, 1),
            "computing": c * running,
            "idle": rest - silent,
            "paused worker": paused,
            "blocked event loop": stalled,
            "silent worker": silent,
            "other clients": o * running,
        }
        return cls(times, np.diff(times), threads, states, begin, end)

    def add_prefixes(self, spans: _Spans, sums: dict[int, Floats]) -> None:
        """Add the thread time of each interval to that of its prefix."""
        for i, kind in enumerate(INTERVALS):
            of_kind = spans.kind == i
            if kind not in _AMOUNTS or not of_kind.any():
                continue
            amount = np.concatenate([[0.0], np.cumsum(self.dt * self.states[_AMOUNTS[kind]])])
            had = amount[self.end[of_kind]] - amount[self.begin[of_kind]]
            found = np.bincount(spans.prefix[of_kind] + 1, weights=had)
            for number in np.unique(spans.prefix[of_kind]).tolist():
                of_prefix = sums.setdefault(number, np.zeros(len(INTERVALS)))
                of_prefix[i] += found[number + 1]

    def of_worker(self, worker: str) -> WorkerStates:
        """Return the states that other answers need, with equal neighbours joined."""
        names = ("computing", "idle")
        kept = np.zeros(len(self.dt), np.bool_)
        kept[:1] = True
        for name in names:
            kept[1:] |= np.diff(self.states[name]) != 0
        computing, idle = (self.states[name][kept] for name in names)
        whole = computing.astype(np.int32)
        return WorkerStates(
            worker,
            self.times[np.append(kept, True)],
            self.threads,
            whole if (whole == computing).all() else computing,
            idle.astype(np.int32),
        )
