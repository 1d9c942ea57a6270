"""The breakdown of thread-seconds: for each worker, its threads times its time connected.

Each instant of each thread counts once. Dask's startstops show whether a thread runs the task's
function (compute), unpacks the task's definition (deserialize) or reads spilled data (disk). A
free thread counts as transfer if a task on its worker waits for dependencies to arrive, one
thread for each such task; all other free threads are idle.

If more tasks run than the worker has threads (asynchronous or seceded tasks), they share the
threads' time. Tasks that fetch share the free threads in the same way. The shares are computed
for each attempt, so that the parts of the prefixes add up to the total too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

KINDS = ("compute", "transfer", "deserialize", "spill", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Thread-seconds of all workers.

    Attributes
    ----------
    total_seconds : float
        Threads times the time that their worker was connected.
    seconds : dict
        Thread-seconds by kind, see `KINDS`; they add up to the total.
    prefixes : tuple of PrefixShare
        Thread-seconds by prefix, the largest first. With the idle ones they add up to the total.
    """

    total_seconds: float
    seconds: dict[str, float]
    prefixes: tuple[PrefixShare, ...] = ()

    def share(self, kind: str) -> float:
        """Return a kind's share of the total, 0 to 1; 0 if the total is 0."""
        return self.seconds[kind] / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True)
class PrefixShare:
    """Thread-seconds of one prefix by kind, without idle ones."""

    prefix: str
    seconds: dict[str, float]

    @property
    def total_seconds(self) -> float:
        """Thread-seconds of all kinds."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class PrefixUse:
    """Tasks and attempts of one prefix, their times in seconds and the size of their results.

    Median, 95th percentile and maximum are those of the attempts' time in the task's function.
    """

    prefix: str
    n_tasks: int
    n_attempts: int
    n_erred: int
    compute_seconds: float
    transfer_seconds: float
    median_seconds: float | None
    p95_seconds: float | None
    max_seconds: float | None
    nbytes: int
    n_retried: int


#: SQL clauses. `counted` has, for each worker from each moment to the next, its number of threads
#: and of tasks by kind; `lifetimes` has one row for each time that a worker was connected.
STATES = """
    with lifetimes as materialized (
        select row_number() over () as lifetime, w.worker, w.nthreads,
               greatest(epoch_ns(coalesce(w.start, b.first)), epoch_ns(b.first)) as t0,
               least(epoch_ns(coalesce(w.stop, b.last)), epoch_ns(b.last)) as t1
        from workers w cross join _bounds b
        -- Skip imported workers that no row mentions.
        where w.worker is not null and (
            w.process is not null or w.n_attempts > 0 or not exists (from imports where kind is null))
    ), spans as (
        select p.attempt, t.lifetime, greatest(epoch_ns(p.start), t.t0) as a,
               least(epoch_ns(p.stop), t.t1) as b, coalesce(n.prefix, '(unknown)') as prefix,
               case when action in ('compute', 'transfer', 'deserialize') then action
                    when action like 'disk%' then 'spill' else 'compute' end as kind
        from phases p join lifetimes t on t.worker = p.worker
        left join attempts n on n.attempt = p.attempt
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
        select lifetime, t,
               lead(t) over w - t as dt,
               sum(d) filter (kind = 'compute') over w as c,
               sum(d) filter (kind = 'deserialize') over w as s,
               sum(d) filter (kind = 'spill') over w as k,
               sum(d) filter (kind = 'transfer') over w as x
        from edges
        window w as (partition by lifetime order by t rows between unbounded preceding and current row)
    ), states as (
        select e.lifetime, t.worker, e.t, e.dt, t.nthreads, coalesce(c, 0) as c, coalesce(s, 0) as s, coalesce(k, 0) as k,
               coalesce(x, 0) as x, coalesce(c, 0) + coalesce(s, 0) + coalesce(k, 0) as busy
        from steps e join lifetimes t on t.lifetime = e.lifetime where e.dt > 0
    ), counted as (
        -- If the number of threads is unknown, use the most that were ever busy at once.
        select *, coalesce(nthreads, greatest(max(busy) over (partition by lifetime), 1)) as n from states
    )
"""

_QUERY = (
    STATES
    + """
    , shares as (
        select *, case when busy > n then n / busy::double else 1 end as running,
               case when x > 0 then least(greatest(n - busy, 0), x) / x::double else 0 end as fetching
        from counted
    ), amounts as (
        -- Thread time that a running task, and a fetching one, got from t0 to each moment.
        select lifetime, t,
               sum(dt * running) over w as ran, sum(dt * fetching) over w as fetched
        from (select lifetime, t + dt as t, dt, running, fetching from shares
              union all select lifetime, t0, 0, 0, 0 from lifetimes)
        window w as (partition by lifetime order by t range between unbounded preceding and current row)
    ), had as (
        select lifetime, t, any_value(ran) as ran, any_value(fetched) as fetched
        from amounts group by lifetime, t
    )
    select null as prefix, null as kind, coalesce(sum(dt * n), 0) / 1e9 as seconds from shares
    union all
    -- One join for both ends: with two, DuckDB may first join the ends with each other by worker.
    select e.prefix, e.kind,
           fsum(e.sign * case when e.kind = 'transfer' then h.fetched else h.ran end) / 1e9
    from (select lifetime, prefix, kind, a as t, -1 as sign from separate where b > a
          union all select lifetime, prefix, kind, b, 1 from separate where b > a) e
    join had h on h.lifetime = e.lifetime and h.t = e.t
    group by e.prefix, e.kind
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
        All zero for an imported run without phases of tasks.
    """
    rows = run.rows(_QUERY)
    parts = [row for row in rows if row["kind"] is not None]
    total = next(float(row["seconds"]) for row in rows if row["kind"] is None)
    if run.record.imported and not len(run["phases"]):
        total = 0.0
    seconds = dict.fromkeys(KINDS, 0.0)
    by_prefix: dict[str, dict[str, float]] = {}
    for row in parts:
        seconds[row["kind"]] += row["seconds"]
        of_prefix = by_prefix.setdefault(row["prefix"], dict.fromkeys(KINDS[:-1], 0.0))
        of_prefix[row["kind"]] += row["seconds"]
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    shares = sorted(
        (PrefixShare(*item) for item in by_prefix.items()),
        key=lambda share: (-share.total_seconds, share.prefix),
    )
    return Breakdown(total, seconds, tuple(shares))


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
                   sum(n_attempts)::bigint as n_attempts, count(*) filter (state = 'erred') as n_erred,
                   coalesce(sum(nbytes), 0)::bigint as nbytes
            from tasks group by 1
        ), a as (
            select coalesce(prefix, '(unknown)') as prefix,
                   coalesce(sum(compute_seconds), 0) as compute_seconds,
                   coalesce(sum(transfer_seconds), 0) as transfer_seconds,
                   median(compute_seconds) as median_seconds, max(compute_seconds) as max_seconds,
                   quantile_cont(compute_seconds, 0.95) as p95_seconds,
                   count(*) filter (outcome = 'retried') as n_retried
            from attempts group by 1
        )
        select t.*, coalesce(a.compute_seconds, 0) as compute_seconds,
               coalesce(a.transfer_seconds, 0) as transfer_seconds, a.median_seconds, a.p95_seconds, a.max_seconds,
               coalesce(a.n_retried, 0) as n_retried
        from t left join a on a.prefix = t.prefix
        order by compute_seconds desc, n_tasks desc, prefix
    """)
    return tuple(PrefixUse(**row) for row in rows)
