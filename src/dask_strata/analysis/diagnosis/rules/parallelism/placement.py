"""Tasks that waited on busy workers while threads of other workers were idle."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.rules.parallelism.idle import LEAST_IDLE
from dask_strata.analysis.words import duration, percent


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on tasks that waited behind others while threads were idle.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    claims = {
        index: seconds * evidence.idle_shares[index]
        for index, seconds in evidence.where("waiting for a worker").items()
        if evidence.idle_shares[index] >= LEAST_IDLE and index not in evidence.shuffle_segments
    }
    if not claims:
        return
    worst = evidence.segments[max(claims, key=lambda i: claims[i])]
    whole = sum(evidence.segments[i].seconds for i in claims)
    occupant = worst.occupant.prefix if worst.occupant is not None else None
    behind = f" behind `{occupant}`" if occupant else ""
    yield Finding(
        "placement",
        f"tasks waited on busy workers while others were idle: `{worst.prefix}` waited{behind} "
        f"on {worst.worker}, and {percent(sum(claims.values()) / whole)} of all threads were "
        "idle",
        f"the critical path waited {duration(whole)} for a thread of a certain worker",
        "make tasks shorter and more even, or allow Dask to move them: work-stealing: true, "
        "distributed.scheduler.worker-saturation: 1.0, client.rebalance() for data that is on "
        "few workers",
        "query RUN 'select name, worker, n_attempts, compute_seconds from workers'",
        claims=claims,
        uses=evidence.whole(claims),
    )
