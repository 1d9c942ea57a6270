"""A cluster that grows and shrinks during the run, so that work waits for workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.measured.scaling import summarize_scaling
from dask_strata.analysis.words import count

_SIZES = """
    select epoch_ns(start) as start, epoch_ns(stop) as stop, n_workers, n_threads
    from cluster_sizes where epoch_ns(start) < $2 and coalesce(epoch_ns(stop), $2) > $1
    order by start
"""

#: Causes in which tasks wait for workers that are not there.
_WAITS = ("waiting for a worker", "scheduler", "waiting for a resource")


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if workers were removed, and tasks waited afterwards.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    first, last = evidence.window
    sizes = evidence.run.rows(_SIZES, first, last)
    numbers = [row["n_workers"] for row in sizes]
    steps = [b - a for a, b in pairwise(numbers)]
    shrunk = next((i for i, step in enumerate(steps) if step < 0), None)
    most = max((row["n_threads"] or 0 for row in sizes), default=0)
    if shrunk is None or not most or evidence.fates.n_unexpected_ends:
        return
    # Tasks that wait after the cluster shrank could have had the threads that it had before.
    since = sizes[shrunk + 1]["start"]
    claims = {}
    for index, segment in enumerate(evidence.segments):
        if segment.cause not in _WAITS or segment.start < since:
            continue
        missing = 1 - evidence.n_threads(segment.start, segment.stop) / most
        if missing > 0:
            claims[index] = segment.seconds * missing
    if not claims:
        return
    added = sum(step for step in steps if step > 0)
    grew = f" and {count(added, 'worker')} added" if added else ""
    scaling = summarize_scaling(evidence.run)
    decided = f"; Dask decided: {scaling.named}" if scaling is not None else ""
    table = "cluster_sizes" if scaling is None else "adaptive_decisions"
    yield Finding(
        "adaptive",
        f"the cluster shrank before the work was done: from {max(numbers)} to {min(numbers)} "
        f"workers, {count(-sum(s for s in steps if s < 0), 'worker')} removed{grew}; tasks waited "
        "for workers",
        f"{count(len(steps), 'change')} of size within the makespan{decided}",
        "keep workers longer: cluster.adapt(minimum=…, wait_count=…, interval=…), or use a "
        "fixed size with cluster.scale(…)",
        f"query RUN 'from {table}'",
        claims=claims,
        uses=evidence.whole(claims),
    )
