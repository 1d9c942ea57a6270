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

#: Causes that may be a worker's spilling under another name: it spills in its event loop.
_BESIDE = (
    "scheduler",
    "blocked event loop",
    "transfer",
    "waiting to fetch",
    "deserialize",
    "silent worker",
)


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
    claims = evidence.where("spill")
    spilling = evidence.conditions("spill")
    for index, segment in enumerate(evidence.segments):
        if segment.cause in _BESIDE:
            # A task may wait for data that another worker has on disk.
            workers = [segment.worker] if segment.cause == "deserialize" else None
            seconds = spilling.seconds(segment.start, segment.stop, workers)
            if seconds:
                claims[index] = seconds
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
