"""Workers that Dask paused because of their memory."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import count, duration


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which the run waited for paused workers.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    row = evidence.run.rows(
        "select count(*) as n, count(distinct worker) as n_workers, sum(epoch_ns(stop) - "
        "epoch_ns(start)) / 1e9 as seconds from _pauses"
    )[0]
    if not row["n"]:
        return
    yield Finding(
        "paused",
        f"workers were paused because of their memory: {count(row['n'], 'pause')} of "
        f"{count(row['n_workers'], 'worker')}",
        f"{duration(row['seconds'])} in all",
        "give workers more memory (memory_limit=…), fewer threads, or smaller chunks; "
        "distributed.worker.memory.pause is the threshold",
        "query RUN 'from cluster_sizes where n_paused > 0'",
        claims=evidence.paused_seconds,
        uses=evidence.whole(evidence.paused_seconds),
    )
