"""The breakdown of thread-seconds: for each worker, its threads times its time connected.

Each instant of each thread counts once. Dask's startstops and the workers' transitions show
whether a thread runs the task's function (compute), unpacks the task's definition or collects its
dependencies within the worker (deserialize). A free thread counts as waiting if there is something
that it waits for, in this order: its worker writes results to disk or reads them (spill, one
thread); tasks on its worker wait for dependencies to arrive (transfer, one thread for each task);
its worker is paused; tasks wait for their turn to fetch, or for a resource (one thread each); its
worker's event loop is blocked while tasks are assigned to it (one thread each); its worker gave no
sign of life until it was removed. All other free threads are idle. Tasks of P2P shuffles wait for
transfers in their own functions: a barrier all the time, a sender by Dask's own measure.

If more tasks run than the worker has threads (asynchronous or seceded tasks), they share the
threads' time. Tasks that wait share the free threads in the same way. The shares are computed
for each attempt, so that the parts of the prefixes add up to the total too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Kinds of thread-seconds, and their meanings.
MEANINGS = {
    "compute": "in a task's function",
    "transfer": "free, while a task on the worker fetched its dependencies",
    "waiting to fetch": "free, while a task on the worker waited for its turn to fetch them",
    "deserialize": "unpacking a task's definition, or collecting its dependencies in the worker",
    "spill": "free or collecting dependencies, while the worker wrote results to disk or read them",
    "waiting for a resource": "free, while a task on the worker waited for a resource",
    "paused worker": "free, while Dask had paused the worker",
    "blocked event loop": "free, while the worker's event loop was blocked and had tasks to start",
    "silent worker": "not known to be busy, after the last sign of life of a worker that was removed "
    "because it sent no heartbeats",
    "other clients": "running tasks of other clients, whose tasks are not shown",
    "idle": "free, with nothing to wait for on the worker",
}

KINDS = tuple(MEANINGS)

#: Kinds that belong to no prefix. Spill belongs to the prefix of the result.
_WITHOUT_PREFIX = (
    "paused worker",
    "blocked event loop",
    "silent worker",
    "other clients",
    "idle",
)

PREFIX_KINDS = tuple(kind for kind in KINDS if kind not in _WITHOUT_PREFIX)

#: Kinds that views show even if they did not occur.
_ALWAYS_SHOWN = ("compute", "transfer", "deserialize", "spill", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Thread-seconds of all workers.

    Attributes
    ----------
    total_seconds : float or None
        Threads times the time that their worker was connected; None if no execution is on record.
    seconds : dict
        Thread-seconds by kind, see `KINDS`; None for kinds that are not on record. The others add
        up to the total: idle time contains that of kinds that are not on record.
    prefixes : tuple of PrefixShare
        Thread-seconds by prefix, the largest first. With those of the kinds that belong to no
        prefix, they add up to the total.
    """

    total_seconds: float | None
    seconds: dict[str, float | None]
    prefixes: tuple[PrefixShare, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The kinds for a view: the usual ones, and others that occurred."""
        return tuple(kind for kind in KINDS if kind in _ALWAYS_SHOWN or self.seconds[kind])

    @property
    def unknown(self) -> tuple[str, ...]:
        """The usual kinds that are not on record."""
        return tuple(kind for kind in _ALWAYS_SHOWN if self.seconds[kind] is None)

    def share(self, kind: str) -> float:
        """Return a kind's share of the total, 0 to 1; 0 if either is 0 or not on record."""
        return (self.seconds[kind] or 0.0) / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True)
class PrefixShare:
    """Thread-seconds of one prefix by kind, see `PREFIX_KINDS`; None for kinds not on record."""

    prefix: str
    seconds: dict[str, float | None]

    @property
    def total_seconds(self) -> float:
        """Thread-seconds of all kinds."""
        return sum(seconds or 0.0 for seconds in self.seconds.values())


@dataclass(frozen=True)
class PrefixUse:
    """Tasks and attempts of one prefix, their times in seconds and the size of their results.

    Median, 95th percentile and maximum are those of the attempts' time in the task's function;
    median and percentile are of functions that ended. Times, the size and the number of failed
    tasks are None if they are on record for no task.
    """

    prefix: str
    n_tasks: int
    n_attempts: int
    n_erred: int | None
    compute_seconds: float | None
    transfer_seconds: float | None
    median_seconds: float | None
    p95_seconds: float | None
    max_seconds: float | None
    nbytes: int | None
    n_retried: int


#: SQL clauses. `shares` has, for each worker from each moment to the next, the numbers of its
#: threads by state; `lifetimes` has one row for each time that a worker was connected.
STATES = """
    with lifetimes as materialized (
        select row_number() over () as lifetime, w.worker, w.nthreads,
               greatest(epoch_ns(coalesce(w.start, b.first)), epoch_ns(b.first)) as t0,
               least(epoch_ns(coalesce(w.stop, b.last)), epoch_ns(b.last)) as t1
        from workers w cross join _bounds b
        -- Skip imported workers that no row mentions.
        where w.worker is not null and (
            w.process is not null or w.n_attempts > 0 or not exists (from imports where kind is null))
    ), blocked as (
        select distinct worker from _worker_conditions where condition = 'blocked event loop'
    ), begun as (
        select attempt, min(epoch_ns(start)) filter (action <> 'transfer') as t
        from phases group by attempt
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
        select coalesce(k.prefix, key_prefix(s.key, s.key_type)) as prefix, s.worker,
               epoch_ns(s.time) - (s.seconds * 1e9)::bigint as a,
               epoch_ns(s.time) as b, 'spill' as kind
        from spills s left join _definitions k on k._key = s._key where s.seconds is not null
        union all by name
        select worker, start as a, stop as b, condition as kind from _worker_conditions
        where condition <> 'spill'
        union all by name
        select worker, start as a, stop as b, 'other clients' as kind from _other_executions
    ), spans as (
        select i.attempt, t.lifetime, greatest(i.a, t.t0) as a, least(i.b, t.t1) as b,
               coalesce(i.prefix, n.prefix, '(unknown)') as prefix, i.kind
        from intervals i join lifetimes t on t.worker = i.worker
        left join attempts n on n.attempt = i.attempt
    ), separate as (
        select lifetime, prefix, kind, a, b from spans where b > a and kind <> 'transfer'
        -- A task that fetches from several workers at once waits once: cut off the overlaps.
        union all select lifetime, prefix, kind, greatest(a, coalesce(max(b) over (
                   partition by attempt, lifetime order by a, b
                   rows between unbounded preceding and 1 preceding), a)) as a, b
        from spans where b > a and kind = 'transfer'
    ), edges as (
        select lifetime, t0 as t, null as kind, 0 as d from lifetimes where t1 > t0
        union all select lifetime, t1, null, 0 from lifetimes where t1 > t0
        union all select lifetime, a, kind, 1 from separate where b > a
        union all select lifetime, b, kind, -1 from separate where b > a
    ), steps as (
        select lifetime, t, lead(t) over w - t as dt,
               coalesce(sum(d) filter (kind = 'compute') over w, 0) as c,
               coalesce(sum(d) filter (kind = 'deserialize') over w, 0) as s,
               coalesce(sum(d) filter (kind = 'disk') over w, 0) as k,
               coalesce(sum(d) filter (kind = 'other clients') over w, 0) as o,
               coalesce(sum(d) filter (kind = 'spill') over w, 0) as g,
               coalesce(sum(d) filter (kind = 'transfer') over w, 0) as x,
               coalesce(sum(d) filter (kind = 'waiting to fetch') over w, 0) as f,
               coalesce(sum(d) filter (kind = 'waiting for a resource') over w, 0) as r,
               coalesce(sum(d) filter (kind = 'paused worker') over w, 0) as p,
               coalesce(sum(d) filter (kind = 'blocked event loop') over w, 0) as l,
               coalesce(sum(d) filter (kind = 'assigned') over w, 0) as q,
               coalesce(sum(d) filter (kind = 'silent worker') over w, 0) as z
        from edges
        window w as (partition by lifetime order by t rows between unbounded preceding and current row)
    ), states as (
        select e.*, t.worker, t.nthreads, c + s + k + o as busy
        from steps e join lifetimes t on t.lifetime = e.lifetime where e.dt > 0
    ), counted as (
        -- If the number of threads is unknown, use the most that were ever busy at once.
        select *, coalesce(nthreads, greatest(max(busy) over (partition by lifetime), 1)) as n from states
    ), shares as (
        -- One event loop spills: in the thread of the task that it collects, else in a free one.
        select *, case when busy > n then n / busy::double else 1 end as running,
               case when g = 0 then 0 when k > 0 then k * running
                    else least(greatest(n - busy, 0), 1) end as spilling,
               greatest(n - busy, 0) - case when k > 0 then 0 else spilling end as free,
               least(free, x) as fetching,
               case when p > 0 then free - fetching else 0 end as paused,
               least(free - fetching - paused, f) as turning,
               least(free - fetching - paused - turning, r) as constrained,
               case when l = 0 then 0 else least(free - fetching - paused - turning - constrained,
                                                 greatest(q - x - f - r, 0)) end as stalled,
               case when z > 0 then free - fetching - paused - turning - constrained - stalled
                    else 0 end as silent,
               free - fetching - paused - turning - constrained - stalled - silent as idle
        from counted
    )
"""

_QUERY = (
    STATES
    + """
    , rates as (
        -- Thread time of each task, or of each spilled result, per time.
        select lifetime, t + dt as t, dt, running,
               case when g > 0 then 0 else running end as collecting,
               case when g > 0 then spilling / g::double else 0 end as spilling,
               case when x > 0 then fetching / x::double else 0 end as fetching,
               case when f > 0 then turning / f::double else 0 end as turning,
               case when r > 0 then constrained / r::double else 0 end as constrained
        from shares
        union all by name select lifetime, t0 as t, 0 as dt from lifetimes
    ), amounts as (
        -- Thread time from t0 to each moment.
        select lifetime, t, sum(dt * running) over w as ran, sum(dt * collecting) over w as collected,
               sum(dt * spilling) over w as spilled, sum(dt * fetching) over w as fetched,
               sum(dt * turning) over w as turned, sum(dt * constrained) over w as constrained
        from rates
        window w as (partition by lifetime order by t range between unbounded preceding and current row)
    ), had as (
        select lifetime, t, coalesce(any_value(ran), 0) as ran,
               coalesce(any_value(collected), 0) as collected,
               coalesce(any_value(spilled), 0) as spilled,
               coalesce(any_value(fetched), 0) as fetched, coalesce(any_value(turned), 0) as turned,
               coalesce(any_value(constrained), 0) as constrained
        from amounts group by lifetime, t
    )
    select null as prefix, null as kind, coalesce(sum(dt * n), 0) / 1e9 as seconds from shares
    union all
    select null, 'paused worker', coalesce(sum(dt * paused), 0) / 1e9 from shares
    union all
    select null, 'blocked event loop', coalesce(sum(dt * stalled), 0) / 1e9 from shares
    union all
    select null, 'silent worker', coalesce(sum(dt * silent), 0) / 1e9 from shares
    union all
    select null, 'other clients', coalesce(sum(dt * o * running), 0) / 1e9 from shares
    union all
    -- One join for both ends: with two, DuckDB may first join the ends with each other by worker.
    select e.prefix, case when e.kind = 'disk' then 'deserialize' else e.kind end,
           fsum(e.sign * case e.kind when 'transfer' then h.fetched when 'disk' then h.collected
                when 'spill' then h.spilled when 'waiting to fetch' then h.turned
                when 'waiting for a resource' then h.constrained else h.ran end) / 1e9
    from (select lifetime, prefix, kind, a as t, -1 as sign from separate where b > a
          union all select lifetime, prefix, kind, b, 1 from separate where b > a) e
    join had h on h.lifetime = e.lifetime and h.t = e.t
    where e.kind not in ('paused worker', 'blocked event loop', 'silent worker', 'other clients',
                         'assigned')
    group by all
"""
)


def breakdown(run: Run) -> Breakdown:
    """Return the thread-seconds of a run, by kind and by prefix.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    Breakdown
        Without seconds for an imported run that has no execution.
    """
    rows = run.rows(_QUERY)
    parts = [row for row in rows if row["kind"] is not None]
    total = next(float(row["seconds"]) for row in rows if row["kind"] is None)
    known = _known_kinds(run)
    if "compute" not in known:
        return Breakdown(None, dict.fromkeys(KINDS))
    seconds = dict.fromkeys(KINDS, 0.0)
    by_prefix: dict[str, dict[str, float]] = {}
    for row in parts:
        seconds[row["kind"]] += row["seconds"]
        if row["prefix"] is not None:
            of_prefix = by_prefix.setdefault(row["prefix"], dict.fromkeys(PREFIX_KINDS, 0.0))
            of_prefix[row["kind"]] += row["seconds"]
    for wait in run.rows("select * from _shuffle_waits"):
        of_prefix = by_prefix.get(wait["prefix"], {})
        waited = min(wait["seconds"], of_prefix.get("compute", 0.0))
        for changed in (seconds, of_prefix) if waited else ():
            changed["compute"] -= waited
            changed["transfer"] += waited
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    shares = sorted(
        (PrefixShare(prefix, _only(known, part)) for prefix, part in by_prefix.items()),
        key=lambda share: (-share.total_seconds, share.prefix),
    )
    return Breakdown(total, _only(known, seconds), tuple(shares))


def _only(known: frozenset[str], seconds: dict[str, float]) -> dict[str, float | None]:
    return {kind: part if kind in known else None for kind, part in seconds.items()}


def _known_kinds(run: Run) -> frozenset[str]:
    """Return the kinds that are on record: for a kind without rows, 0 is then its amount.

    Recorded workers have rows of everything that happens on them. Of other workers only the
    scheduler's rows are known, or the rows of the imported files.
    """
    [row] = run.rows("""
        select count(*) as n, count(compute_seconds) as compute, count(transfer_seconds) as transfer,
               count(deserialize_seconds) as deserialize, count(disk_seconds) as spill,
               exists (from processes where role = 'worker') as recorded
        from attempts
    """)
    if run.record.imported:
        return frozenset(kind for kind in ("compute", "transfer") if row[kind]) | {"idle"}
    if row["recorded"] or not row["n"]:
        return frozenset(KINDS)
    of_attempts = ("compute", "transfer", "deserialize", "spill")
    return frozenset(kind for kind in of_attempts if row[kind]) | {"paused worker", "idle"}


def prefixes(run: Run) -> tuple[PrefixUse, ...]:
    """Return the tasks, times and sizes of each prefix, the longest compute time first.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows("""
        with t as (
            select coalesce(prefix, '(unknown)') as prefix, count(*) as n_tasks,
                   sum(n_attempts)::bigint as n_attempts,
                   case when count(state) > 0 then count(*) filter (state = 'erred') end as n_erred,
                   sum(nbytes)::bigint as nbytes
            from tasks where not finished_before group by 1
        ), a as (
            select coalesce(prefix, '(unknown)') as prefix,
                   sum(compute_seconds) as compute_seconds,
                   sum(transfer_seconds) as transfer_seconds,
                   median(compute_seconds) filter (ended) as median_seconds,
                   max(compute_seconds) as max_seconds,
                   quantile_cont(compute_seconds, 0.95) filter (ended) as p95_seconds,
                   count(*) filter (outcome = 'retried') as n_retried
            from (select *, outcome not in ('running', 'lost', 'released') as ended from attempts)
            group by 1
        )
        select t.*, a.compute_seconds, a.transfer_seconds, a.median_seconds, a.p95_seconds,
               a.max_seconds, coalesce(a.n_retried, 0) as n_retried
        from t left join a on a.prefix = t.prefix
        order by compute_seconds desc nulls last, n_tasks desc, prefix
    """)
    return tuple(PrefixUse(**row) for row in rows)
