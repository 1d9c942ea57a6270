"""The insights of a run: each rule's findings, with the seconds of the makespan that they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dask_strata.analysis.diagnosis.claims import Claims, Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.diagnosis.insight import Insight
from dask_strata.analysis.diagnosis.registry import Rule, rules

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.walk import CriticalPath
    from dask_strata.analysis.series.thread_states import ThreadStates
    from dask_strata.run import Run

#: Folder of the documentation with a page for each cause.
_DOCS = "docs/causes"


def diagnose(
    run: Run, path: CriticalPath, states: ThreadStates | None = None
) -> tuple[Insight, ...]:
    """Return the insights of a run: faults first, then by what they cost.

    Parameters
    ----------
    run : Run
        The run.
    path : CriticalPath
        Its critical path.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.
    """
    evidence = Evidence(run, path, states)
    claims = Claims(path.segments)
    found = []
    for name, rule, ours in rules():
        for finding in _evaluate(name, rule, evidence, ours=ours):
            insight = claims.grant(finding)
            if insight is not None:
                docs = f"{_DOCS}/{insight.cause}.md" if ours else ""
                found.append(replace(insight, docs=docs))
    return tuple(sorted(found, key=_rank))


#: Causes of failures of the run itself, which come first.
FAILURES = ("exception", "killed-task")


def _rank(insight: Insight) -> tuple[bool, bool, float]:
    return insight.cause not in FAILURES, not insight.grave, -(insight.seconds or 0.0)


def _evaluate(name: str, rule: Rule, evidence: Evidence, *, ours: bool) -> Iterable[Finding]:
    if ours:
        return rule(evidence)
    try:
        return tuple(rule(evidence))
    except Exception as error:  # noqa: BLE001  code of others, which must not hide our answers
        text = f"the rule {name} of another package failed: {type(error).__name__}: {error}"
        return (Finding("failed-rule", text, always=True),)
