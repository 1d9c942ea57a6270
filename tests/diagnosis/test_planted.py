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

FIRST = [name for name in names() if name.endswith("_1")]


@pytest.mark.parametrize("name", FIRST)
def test_a_planted_cause_is_named(name: str, tmp_path: Path) -> None:
    """It is among the first three insights; costs add up to at most the makespan.

    Other processes of the machine can cost more than the planted cause. One of two recordings
    must name it.
    """
    expected = accepted(cause_of(name))
    assert any(expected & set(causes_of(name, tmp_path / str(n))) for n in range(2))


def causes_of(name: str, runs: Path) -> list[str]:
    """Return the causes that a recording of a workload shows."""
    runs.mkdir()
    run = open_run(record(WORKLOADS / f"{name}.py", runs).path)
    found = run.insights()
    assert all(insight.text and insight.command for insight in found)
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    assert sum(i.seconds or 0 for i in found) <= path.makespan_seconds * (1 + 1e-9)
    return [insight.cause for insight in found[:SHOWN]]


@pytest.mark.parametrize("name", names(HEALTHY))
def test_a_healthy_run_has_no_insight(name: str, tmp_path: Path) -> None:
    """Nothing is worth 5 % of its makespan, in one of two recordings likewise."""
    found = []
    for number in range(2):
        runs = tmp_path / str(number)
        runs.mkdir()
        insights = open_run(record(HEALTHY / f"{name}.py", runs).path).insights()
        if not insights:
            return
        found.append([(insight.cause, insight.seconds) for insight in insights])
    pytest.fail(f"{name}: {found}")
