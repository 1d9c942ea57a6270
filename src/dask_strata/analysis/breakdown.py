"""Where worker-seconds went: for each worker, its threads times the time it was there.

Each instant of each thread is counted once. A thread is in the task's function (compute),
unpacking its definition (deserialize) or reading spilled data (disk) as Dask's startstops
say. Of the threads that are free, as many as there are tasks waiting for their
dependencies to arrive are counted as transfer; the others are idle. When more tasks run
than there are threads (asynchronous or seceded ones) they share the threads' time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

KINDS = ("compute", "transfer", "deserialize", "spill", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Worker-seconds by kind; they add up to `total_seconds`, threads times duration."""

    total_seconds: float
    seconds: dict[str, float]

    def share(self, kind: str) -> float:
        """Return the part of the whole that a kind has, 0 to 1."""
        return self.seconds[kind] / self.total_seconds if self.total_seconds else 0.0


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
    max_seconds: float | None
    nbytes: int


_QUERY = """
    with there as (
        select w.worker, w.nthreads,
               greatest(epoch_ns(coalesce(w.start, b.first)), epoch_ns(b.first)) as t0,
               least(epoch_ns(coalesce(w.stop, b.last)), epoch_ns(b.last)) as t1
        from workers w cross join _bounds b
        -- Of an imported worker that told nothing, and that nobody told of, nothing is known.
        where w.process is not null or w.n_attempts > 0 or not exists (from imports where kind is null)
    ), spans as (
        select p.attempt, t.worker, t.t0, greatest(epoch_ns(p.start), t.t0) as a,
               least(epoch_ns(p.stop), t.t1) as b,
               case when action in ('compute', 'transfer', 'deserialize') then action
                    when action like 'disk%' then 'spill' else 'compute' end as kind
        from phases p join there t on t.worker = p.worker
    ), apart as (
        -- A task that fetches from several workers at once waits once.
        select worker, t0, kind, b, case when kind = 'transfer' then greatest(a, coalesce(max(b) over (
                   partition by attempt, worker, t0, kind order by a, b
                   rows between unbounded preceding and 1 preceding), a)) else a end as a
        from spans where b > a
    ), edges as (
        select worker, t0, t0 as t, null as kind, 0 as d from there where t1 > t0
        union all select worker, t0, t1, null, 0 from there where t1 > t0
        union all select worker, t0, a, kind, 1 from apart where b > a
        union all select worker, t0, b, kind, -1 from apart where b > a
    ), steps as (
        select worker, t0, t,
               lead(t) over w - t as dt,
               sum(d) filter (kind = 'compute') over w as c,
               sum(d) filter (kind = 'deserialize') over w as s,
               sum(d) filter (kind = 'spill') over w as k,
               sum(d) filter (kind = 'transfer') over w as x
        from edges
        window w as (partition by worker, t0 order by t rows between unbounded preceding and current row)
    ), states as (
        select e.worker, e.t0, e.dt, t.nthreads, coalesce(c, 0) as c, coalesce(s, 0) as s, coalesce(k, 0) as k,
               coalesce(x, 0) as x, coalesce(c, 0) + coalesce(s, 0) + coalesce(k, 0) as busy
        from steps e join there t on t.worker = e.worker and t.t0 = e.t0 where e.dt > 0
    ), counted as (
        -- Where nobody told how many threads there are: as many as were ever busy at once.
        select *, coalesce(nthreads, greatest(max(busy) over (partition by worker, t0), 1)) as n from states
    ), shares as (
        select *, case when busy > n then n / busy::double else 1 end as f,
               least(greatest(n - busy, 0), x) as fetching
        from counted
    )
    select coalesce(sum(dt * n), 0) / 1e9 as total, (select count(*) from phases) as seen,
           coalesce(sum(dt * c * f), 0) / 1e9 as compute,
           coalesce(sum(dt * s * f), 0) / 1e9 as deserialize,
           coalesce(sum(dt * k * f), 0) / 1e9 as spill,
           coalesce(sum(dt * fetching), 0) / 1e9 as transfer
    from shares
"""


def breakdown(run: Run) -> Breakdown:
    """Return where the worker-seconds of a run went."""
    row = run.rows(_QUERY)[0]
    total = float(row["total"])
    if run.record.imported and not row["seen"]:
        total = 0.0
    seconds = {kind: float(row[kind]) for kind in KINDS if kind != "idle"}
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    return Breakdown(total, {kind: seconds[kind] for kind in KINDS})


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
                   median(compute_seconds) as median_seconds, max(compute_seconds) as max_seconds
            from attempts group by 1
        )
        select t.*, coalesce(a.compute_seconds, 0) as compute_seconds,
               coalesce(a.transfer_seconds, 0) as transfer_seconds, a.median_seconds, a.max_seconds
        from t left join a on a.prefix = t.prefix
        order by compute_seconds desc, n_tasks desc, prefix
    """)
    return tuple(PrefixUse(**row) for row in rows)
