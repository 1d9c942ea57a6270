"""Planted causes are named on the first screen, and healthy runs have no insight.

Each script plants one cause, and measures itself what it costs. Times are compared by
``benchmarks/diagnosis.py`` on an idle machine, for all scripts; here, one script of each cause is
recorded, so that a change of a rule is noticed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.critical_path import critical_path
from tests.support.planted import HEALTHY, WORKLOADS, accepted, cause_of, names, record

pytestmark = [pytest.mark.long, pytest.mark.alone]

#: Insights that the first screen shows.
SHOWN = 3

FIRST = [name for name in names() if name.endswith("_1")]


@pytest.mark.parametrize("name", FIRST)
def test_a_planted_cause_is_named(name: str, tmp_path: Path) -> None:
    """It is among the first three insights; costs add up to at most the makespan."""
    run = undisturbed(WORKLOADS / f"{name}.py", tmp_path, accepted(cause_of(name)))
    found = run.insights()
    assert accepted(cause_of(name)) & {insight.cause for insight in found[:SHOWN]}, str(found)
    assert all(insight.text and insight.command for insight in found)
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    assert sum(i.seconds or 0 for i in found) <= path.makespan_seconds * (1 + 1e-9)


@pytest.mark.parametrize("name", names(HEALTHY))
def test_a_healthy_run_has_no_insight(name: str, tmp_path: Path) -> None:
    """Nothing is worth 5 % of its makespan."""
    run = undisturbed(HEALTHY / f"{name}.py", tmp_path, set())
    assert [insight.cause for insight in run.insights()] == []


def undisturbed(script: Path, folder: Path, planted: set[str]) -> Run:
    """Return a recording of a script; another one if others took the CPUs meanwhile.

    An insight of that is true, and no fault of the script.
    """
    for number in range(2):
        runs = folder / str(number)
        runs.mkdir()
        run = open_run(record(script, runs).path)
        causes = {insight.cause for insight in run.insights()}
        if "cpu-starvation" not in causes - planted:
            break
    return run
