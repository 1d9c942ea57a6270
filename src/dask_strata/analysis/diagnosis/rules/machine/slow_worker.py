"""A worker or host on which the same tasks take longer than on others."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, duration, number

#: Least ratio of a worker's medians to those of the others, and least number of its executions.
_LEAST_RATIO = 1.6
_LEAST_EXECUTIONS = 4

#: Median of each prefix on each worker and on all others, of prefixes with enough executions.
_MEDIANS = """
    with chosen as (
        select coalesce(prefix, '(unknown)') as prefix, worker, compute_seconds as seconds
        from attempts where compute_seconds > 0.001 and worker is not null
          and outcome not in ('running', 'lost', 'released')
    ), by_worker as (
        select prefix, worker, count(*) as n, median(seconds) as median, sum(seconds) as total
        from chosen group by prefix, worker
    )
    select b.prefix, b.worker, b.n, b.median, b.total,
           (select median(o.median) from by_worker o
            where o.prefix = b.prefix and o.worker <> b.worker and o.n >= 3) as others
    from by_worker b where b.n >= 3
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the slowest worker.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    by_worker: dict[str, list[dict[str, float]]] = {}
    for row in evidence.run.rows(_MEDIANS):
        if row["others"]:
            by_worker.setdefault(row["worker"], []).append(row)
    ratios, n_executions = {}, {}
    for worker, rows in by_worker.items():
        expected = sum(row["total"] * row["others"] / row["median"] for row in rows)
        n_executions[worker] = sum(row["n"] for row in rows)
        ratios[worker] = sum(row["total"] for row in rows) / expected if expected else 1.0
    slow = {
        worker: ratio
        for worker, ratio in ratios.items()
        if ratio >= _LEAST_RATIO and n_executions[worker] >= _LEAST_EXECUTIONS
    }
    if not slow or len(slow) > len(evidence.machine.workers) / 2:
        return
    # While all threads are busy, a slow worker costs its part of the cluster's speed; while the
    # others are idle, all the time that its task took longer.
    threads = {w: row["nthreads"] or 1 for w, row in evidence.machine.workers.items()}
    lost = sum((1 - 1 / ratio) * threads.get(w, 1) for w, ratio in slow.items())
    part = lost / max(sum(threads.values()), 1)
    claims, uses = {}, {}
    for index, seconds, runner in evidence.runner_seconds():
        segment = evidence.segments[index]
        idle = evidence.others_idle_share(segment.start, segment.stop)
        alone = 1 - 1 / slow[runner.worker] if runner.worker in slow else 0.0
        claims[index] = seconds * (idle * alone + (1 - idle) * part)
        uses[index] = seconds if alone else claims[index]
    worst = max(slow, key=lambda worker: slow[worker])
    known = evidence.machine.workers.get(worst, {})
    rows = sorted(by_worker[worst], key=lambda row: -row["total"])
    yield Finding(
        "slow-worker",
        f"worker {known.get('name') or worst} on {known.get('host') or 'an unknown host'} is "
        f"slow: the same tasks took {number(slow[worst])} times as long as on others",
        f"`{rows[0]['prefix']}`: {duration(rows[0]['median'])} instead of "
        f"{duration(rows[0]['others'])}; {count(int(n_executions[worst]), 'execution')} on it"
        + (f"; {count(len(slow), 'slow worker')} in all" if len(slow) > 1 else ""),
        "check the load, the memory and the storage of this host, and leave it out: "
        f"client.retire_workers(['{worst}'])",
        "query RUN 'select worker, prefix, count(*), median(compute_seconds) from attempts "
        "group by all order by 2, 4'",
        claims=claims,
        uses=uses,
    )
