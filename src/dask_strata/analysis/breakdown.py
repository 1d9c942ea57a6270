"""Where worker-seconds went: for each worker, its threads times the time it was there.

Each instant of each thread is counted once. A thread is in the task's function (compute),
unpacking its definition (deserialize) or reading spilled data (disk) as Dask's startstops
say. Of the threads that are free, as many as there are tasks waiting for their
dependencies to arrive are counted as transfer; the others are idle. When more tasks run
than there are threads (asynchronous or seceded ones) they share the threads' time, and so do
those that fetch while fewer threads are free. What a worker's instant is shared among is known
for each attempt, so the parts of the prefixes add up as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

KINDS = ("compute", "transfer", "deserialize", "spill", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Worker-seconds by kind; they add up to `total_seconds`, threads times duration.

    Those of `prefixes`, the largest first, and of idleness add up to it, too.
    """

    total_seconds: float
    seconds: dict[str, float]
    prefixes: tuple[PrefixShare, ...] = ()

    def share(self, kind: str) -> float:
        """Return the part of the whole that a kind has, 0 to 1."""
        return self.seconds[kind] / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True)
class PrefixShare:
    """Worker-seconds of one prefix by kind; idleness is nobody's."""

    prefix: str
    seconds: dict[str, float]

    @property
    def total_seconds(self) -> float:
        """All its worker-seconds."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class PrefixUse:
    """What the tasks of one prefix did."""

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


#: How many threads and tasks of each worker do what from each moment to the next: `counted`.
STATES = """
    with there as materialized (
        select row_number() over () as place, w.worker, w.nthreads,
               greatest(epoch_ns(coalesce(w.start, b.first)), epoch_ns(b.first)) as t0,
               least(epoch_ns(coalesce(w.stop, b.last)), epoch_ns(b.last)) as t1
        from workers w cross join _bounds b
        -- Of an imported worker that told nothing, and that nobody told of, nothing is known.
        where w.worker is not null and (
            w.process is not null or w.n_attempts > 0 or not exists (from imports where kind is null))
    ), spans as (
        select p.attempt, t.place, greatest(epoch_ns(p.start), t.t0) as a,
               least(epoch_ns(p.stop), t.t1) as b, coalesce(n.prefix, '(unknown)') as prefix,
               case when action in ('compute', 'transfer', 'deserialize') then action
                    when action like 'disk%' then 'spill' else 'compute' end as kind
        from phases p join there t on t.worker = p.worker
        left join attempts n on n.attempt = p.attempt
    ), apart as (
        select place, prefix, kind, a, b from spans where b > a and kind <> 'transfer'
        -- A task that fetches from several workers at once waits once.
        union all select place, prefix, kind, greatest(a, coalesce(max(b) over (
                   partition by attempt, place order by a, b
                   rows between unbounded preceding and 1 preceding), a)) as a, b
        from spans where b > a and kind = 'transfer'
    ), edges as (
        select place, t0 as t, null as kind, 0 as d from there where t1 > t0
        union all select place, t1, null, 0 from there where t1 > t0
        union all select place, a, kind, 1 from apart where b > a
        union all select place, b, kind, -1 from apart where b > a
    ), steps as (
        select place, t,
               lead(t) over w - t as dt,
               sum(d) filter (kind = 'compute') over w as c,
               sum(d) filter (kind = 'deserialize') over w as s,
               sum(d) filter (kind = 'spill') over w as k,
               sum(d) filter (kind = 'transfer') over w as x
        from edges
        window w as (partition by place order by t rows between unbounded preceding and current row)
    ), states as (
        select e.place, t.worker, e.t, e.dt, t.nthreads, coalesce(c, 0) as c, coalesce(s, 0) as s, coalesce(k, 0) as k,
               coalesce(x, 0) as x, coalesce(c, 0) + coalesce(s, 0) + coalesce(k, 0) as busy
        from steps e join there t on t.place = e.place where e.dt > 0
    ), counted as (
        -- Where nobody told how many threads there are: as many as were ever busy at once.
        select *, coalesce(nthreads, greatest(max(busy) over (partition by place), 1)) as n from states
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
        -- Up to each moment: the time that one who runs, or fetches, was there had.
        select place, t,
               sum(dt * running) over w as ran, sum(dt * fetching) over w as fetched
        from (select place, t + dt as t, dt, running, fetching from shares
              union all select place, t0, 0, 0, 0 from there)
        window w as (partition by place order by t range between unbounded preceding and current row)
    ), had as (
        select place, t, any_value(ran) as ran, any_value(fetched) as fetched
        from amounts group by place, t
    )
    select null as prefix, null as kind, coalesce(sum(dt * n), 0) / 1e9 as seconds from shares
    union all
    -- One join for both ends: two can be joined with each other first, by place alone.
    select e.prefix, e.kind,
           fsum(e.sign * case when e.kind = 'transfer' then h.fetched else h.ran end) / 1e9
    from (select place, prefix, kind, a as t, -1 as sign from apart where b > a
          union all select place, prefix, kind, b, 1 from apart where b > a) e
    join had h on h.place = e.place and h.t = e.t
    group by e.prefix, e.kind
"""
)


def breakdown(run: Run) -> Breakdown:
    """Return where the worker-seconds of a run went."""
    rows = run.rows(_QUERY)
    parts = [row for row in rows if row["kind"] is not None]
    total = next(float(row["seconds"]) for row in rows if row["kind"] is None)
    if run.record.imported and not len(run["phases"]):
        total = 0.0
    seconds = dict.fromkeys(KINDS, 0.0)
    by_prefix: dict[str, dict[str, float]] = {}
    for row in parts:
        seconds[row["kind"]] += row["seconds"]
        of = by_prefix.setdefault(row["prefix"], dict.fromkeys(KINDS[:-1], 0.0))
        of[row["kind"]] += row["seconds"]
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    shares = sorted(
        (PrefixShare(*item) for item in by_prefix.items()),
        key=lambda share: (-share.total_seconds, share.prefix),
    )
    return Breakdown(total, seconds, tuple(shares))


def prefixes(run: Run) -> tuple[PrefixUse, ...]:
    """Return what the tasks of each prefix did, those that computed longest first."""
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
