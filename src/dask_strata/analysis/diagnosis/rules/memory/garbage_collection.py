"""Long collections of Python's garbage collector, which stop the threads of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, duration, percent

#: Generation of a full collection, which visits all containers of the process.
_FULL = 2

#: Collections by worker (null for the scheduler) within the makespan, the most seconds first.
_COLLECTIONS = """
    with parts as (
        select g.worker, g.generation, a.prefix,
               (least(g.stop_ns, $2) - greatest(g.start_ns, $1)) / 1e9 as seconds
        from _gc_pauses g left join attempts a using (attempt)
        where g.stop_ns > $1 and g.start_ns < $2
    )
    select p.worker, n.name, count(*) as n, sum(seconds) as seconds, max(seconds) as longest,
           coalesce(sum(seconds) filter (generation = $3), 0) as full_seconds
    from parts p
    left join (select worker, any_value(name) as name from workers group by worker) n
      on n.worker = p.worker
    group by all
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for long collections.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    stopped: dict[str | None, float] = {}
    begun: dict[str, float] = {}
    claims: dict[int, float] = {}
    for index, segment in enumerate(evidence.segments):
        occupant = segment.occupant
        if occupant is not None and occupant.kind == "gc":
            claims[index] = segment.seconds
            worker = occupant.worker
            stopped[worker] = stopped.get(worker, 0.0) + segment.seconds
            if occupant.prefix is not None:
                begun[occupant.prefix] = begun.get(occupant.prefix, 0.0) + segment.seconds
    if not claims:
        return
    rows = {row["worker"]: row for row in evidence.run.rows(_COLLECTIONS, *evidence.window, _FULL)}
    longest = max(stopped, key=lambda worker: (stopped[worker], worker or ""))
    prefix = max(begun, key=lambda each: (begun[each], each)) if begun else None
    n_workers = count(len(set(rows) - {None}), "worker")
    yield Finding(
        "gc",
        _text(rows[longest], prefix),
        f"{percent(sum(claims.values()) / evidence.makespan_seconds)} of the critical path; "
        f"{count(rows[longest]['n'], 'collection')} of at least 10 ms there, the longest "
        f"{duration(rows[longest]['longest'])}; {n_workers} had some",
        "keep fewer containers: NumPy, pandas or Arrow in place of lists and dicts of Python "
        "objects; call gc.freeze() after loading large ones; call gc.collect() less often, and "
        "raise gc.set_threshold(…) where a task creates many",
        "query RUN 'select start, worker, generation, seconds, collected, key from gc_pauses "
        "order by seconds desc'",
        claims=claims,
    )


def _text(row: dict[str, Any], prefix: str | None) -> str:
    whose = f"worker {row['name'] or row['worker']}" if row["worker"] else "the scheduler"
    kind = "full collections" if row["full_seconds"] >= row["seconds"] / 2 else "collections"
    by = f", begun by `{prefix}`" if prefix else ""
    return (
        f"the garbage collector stopped {whose} for {duration(row['seconds'])}, mostly in {kind}"
        f"{by}"
    )
