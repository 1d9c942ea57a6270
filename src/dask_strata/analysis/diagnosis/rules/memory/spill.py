"""Results that did not fit into memory, so that workers wrote them to disk and read them back."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, duration, size

_SPILLS = """
    select count(*) filter (action = 'spill') as n,
           coalesce(sum(nbytes) filter (action = 'spill'), 0)::double as nbytes,
           coalesce(sum(seconds) filter (action = 'spill'), 0) as written,
           coalesce(sum(seconds) filter (action <> 'spill'), 0) as read,
           count(distinct worker) as n_workers
    from spills
"""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for spilling.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    row = evidence.run.rows(_SPILLS)[0]
    if not row["n"]:
        return
    # A worker spills in its event loop, so that it neither sends nor receives data meanwhile.
    claims = evidence.where("spill") | evidence.beside(evidence.conditions("spill"))
    yield Finding(
        "spill",
        f"results did not fit into memory: {count(row['n'], 'result')} ({size(row['nbytes'])}) "
        "spilled to disk, and workers waited for the disk",
        f"{count(row['n_workers'], 'worker')} wrote for {duration(row['written'])} and read "
        f"for {duration(row['read'])}",
        "give workers more memory (memory_limit=…, fewer threads a worker), use smaller "
        "chunks, free results earlier (del futures, persist less), or put temporary-directory "
        "on a fast disk; distributed.worker.memory.target and .spill are the thresholds",
        "query RUN 'select worker, action, count(*), sum(nbytes), sum(seconds) from spills "
        "group by all'",
        claims=claims,
    )
