"""Claims of what threads of tasks waited for, by the samples of their threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dask_strata.analysis.diagnosis.samples import Runner, Waited

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.evidence import Evidence

#: Share of an execution's samples below which a wait is no cause.
LEAST_SHARE = 0.05


class WaitsOnPath(NamedTuple):
    """Waits of the executions on the critical path.

    Attributes
    ----------
    claims : dict
        Seconds by segment.
    runners : list
        The executions that waited.
    main : Waited
        The place with most of them.
    """

    claims: dict[int, float]
    runners: list[Runner]
    main: Waited


def waits_on_path(evidence: Evidence, chosen: Callable[[Waited], bool]) -> WaitsOnPath | None:
    """Return how long the executions on the path waited; None if they did not.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    chosen : callable
        Whether a row of samples is such a wait.
    """
    if not evidence.samples:
        return None
    claims, runners = {}, []
    for index, seconds, runner in evidence.runner_seconds():
        share = evidence.samples.share(runner, chosen)
        if share >= LEAST_SHARE:
            claims[index] = seconds * share
            runners.append(runner)
    main = evidence.samples.main(runners, chosen)
    return None if main is None else WaitsOnPath(claims, runners, main)
