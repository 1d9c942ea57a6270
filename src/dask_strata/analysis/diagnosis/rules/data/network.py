"""Tasks that wait for the network."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.places import waited_at
from dask_strata.analysis.diagnosis.waits import waits_on_path
from dask_strata.analysis.words import duration, percent


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which functions of tasks waited for the network.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    waits = waits_on_path(evidence, lambda waited: waited.waiting == "network")
    if waits is None:
        return
    whole = sum(evidence.whole(waits.claims).values())
    yield Finding(
        "network",
        f"tasks waited for the network: `{evidence.main_prefix_of(waits.claims)}`"
        f"{waited_at(waits.main, evidence.run.script)}",
        f"threads on the critical path waited {percent(sum(waits.claims.values()) / whole)} of "
        f"{duration(whole)} in functions for it",
        "let more of these tasks run at once (threads_per_worker=…, or an async function as the "
        "task), ask for more with each request, or keep the answers",
        "query RUN \"from task_samples where waiting = 'network'\"",
        claims=waits.claims,
    )
