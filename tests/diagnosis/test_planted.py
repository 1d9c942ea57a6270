"""Planted causes are named on the first screen, and healthy runs have no insight.

Each script plants one cause, and measures itself what it costs. Times are compared by
``benchmarks/diagnosis.py`` on an idle machine, for all scripts; here, one script of each cause is
recorded, so that a change of a rule is noticed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.analysis.critical_path import critical_path
from tests.support.planted import HEALTHY, WORKLOADS, accepted, cause_of, names, record

pytestmark = [pytest.mark.long, pytest.mark.alone]

#: Insights that the first screen shows.
SHOWN = 3

#: Scripts whose cost depends too much on the machine to be named on any.
UNSTEADY = ("scheduler/stealing_1",)

FIRST = [name for name in names() if name.endswith("_1") and name not in UNSTEADY]


@pytest.mark.parametrize("name", FIRST)
def test_a_planted_cause_is_named(name: str, tmp_path: Path) -> None:
    """It is among the first three insights; costs add up to at most the makespan."""
    run = open_run(record(WORKLOADS / f"{name}.py", tmp_path).path)
    found = run.insights()
    expected = accepted(cause_of(name))
    assert expected & {insight.cause for insight in found[:SHOWN]}, str(found)
    assert all(insight.text and insight.command for insight in found)
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    assert sum(i.seconds or 0 for i in found) <= path.makespan_seconds * (1 + 1e-9)


@pytest.mark.parametrize("name", names(HEALTHY))
def test_a_healthy_run_has_no_insight(name: str, tmp_path: Path) -> None:
    """Nothing is worth 5 % of its makespan."""
    run = open_run(record(HEALTHY / f"{name}.py", tmp_path).path)
    assert [insight.cause for insight in run.insights()] == []
