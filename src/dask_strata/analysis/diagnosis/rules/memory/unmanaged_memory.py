"""Memory that grows without being results of tasks."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, percent, size

#: Share of the memory limit, and of a process's memory, from which unmanaged memory is a cause.
_LARGE = 0.5

#: Least share of the growth that was there before the tasks began that ran at the peak. Less than
#: that is memory that these tasks work with.
_LEAST_KEPT = 1 / 3

_UNMANAGED = """
    with samples as (
        select s.worker, s.process, s.time, s.rss_bytes, s.managed_bytes,
               s.rss_bytes - coalesce(s.managed_bytes, 0) as unmanaged
        from worker_samples s where s.seen_by = 'worker' and s.rss_bytes is not null
    ), firsts as (
        select process, arg_min(unmanaged, time) as at_first from samples group by process
    ), limits as (
        select process, any_value(memory_limit_bytes) as memory_limit from processes
        where memory_limit_bytes > 0 group by process
    ), peaks as (
        select worker, process, max(unmanaged)::double as unmanaged,
               arg_max(rss_bytes, unmanaged)::double as rss, arg_max(time, unmanaged) as peak
        from samples group by worker, process
    ), since as (
        select p.process, least(min(epoch_ns(e.start)), any_value(epoch_ns(p.peak))) as begun
        from peaks p left join phases e
          on e.worker = p.worker and e.action in ('compute', 'executing')
             and epoch_ns(e.start) <= epoch_ns(p.peak)
             and (e.stop is null or epoch_ns(e.stop) >= epoch_ns(p.peak))
        group by p.process
    ), kept as (
        select s.process, arg_max(s.unmanaged, s.time)::double as before
        from samples s join since b on b.process = s.process and epoch_ns(s.time) <= b.begun
        group by s.process
    )
    select p.*, f.at_first::double as at_first, coalesce(k.before, f.at_first)::double as before,
           l.memory_limit
    from peaks p join firsts f using (process) join limits l using (process)
    left join kept k using (process)
    order by p.unmanaged / l.memory_limit desc
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if unmanaged memory reached much of a worker's limit and cost time.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    rows = [
        row
        for row in evidence.run.rows(_UNMANAGED)
        if row["unmanaged"] - row["at_first"] >= _LARGE * row["memory_limit"]
        and row["unmanaged"] >= _LARGE * row["rss"]
        and row["before"] - row["at_first"] >= _LEAST_KEPT * (row["unmanaged"] - row["at_first"])
    ]
    if not rows:
        return
    row = rows[0]
    workers = {row["worker"] for row in rows}
    # A task may wait without a worker while all of them are paused.
    paused = {
        index: seconds
        for index, seconds in evidence.paused_seconds.items()
        if evidence.segments[index].worker in {*workers, None}
    }
    claims = paused | {
        index: seconds
        for index, seconds in evidence.where("silent worker").items()
        if evidence.segments[index].worker in workers
    }
    claims |= evidence.fates.lost_on(workers)
    prefix = evidence.machine.prefix_that_grew(row["process"])
    grew = f"; it grew most while `{prefix}` ran" if prefix else ""
    then = ", and Dask paused workers" if paused else ""
    yield Finding(
        "unmanaged-memory",
        f"unmanaged memory grew to {percent(row['unmanaged'] / row['memory_limit'])} of the "
        f"limit{then}: {size(row['unmanaged'])} on {row['worker']} hold no result",
        f"{size(row['at_first'])} at first{grew}; on {count(len(workers), 'worker')}",
        "look for lists, caches and globals that tasks fill; give workers more memory_limit, "
        "or restart them (--lifetime); without a nanny, set MALLOC_TRIM_THRESHOLD_=65536",
        "query RUN 'select time, worker, rss_bytes, managed_bytes, unmanaged_bytes from "
        "worker_samples'",
        claims=claims,
        uses=evidence.whole(claims),
    )
