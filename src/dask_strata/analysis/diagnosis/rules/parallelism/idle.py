"""Seconds of the path in which a task ran or waited while threads were idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.evidence import Evidence

#: Share of idle threads below which the cluster is busy.
LEAST_IDLE = 0.1


def idle_seconds(evidence: Evidence) -> dict[int, float]:
    """Return by segment what it would be shorter if its work were divided between all threads.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    return {
        index: seconds * evidence.idle_shares[index]
        for index, seconds, _ in evidence.runner_seconds()
        if evidence.idle_shares[index] >= LEAST_IDLE
    }
