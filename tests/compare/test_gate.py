"""Limits for CI jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dask_strata.analysis.compare.compare import Comparison, compare_groups
from dask_strata.analysis.compare.gate import EXCEEDED, HOLDS, UNCLEAR, parse_limit
from dask_strata.analysis.compare.runs import Group
from dask_strata.analysis.diagnosis.registry import causes
from dask_strata.errors import UsageError
from dask_strata.report.comparison.lines import judgement_line
from tests.support.repeats import repeats, synthetic


def compared(n: int, factor: float, spread: float = 0.02) -> Comparison:
    draws = np.random.default_rng(4)
    factors = dict.fromkeys(("load", "smooth", "reduce", "combine"), factor)
    return compare_groups(
        [
            synthetic("before", draws, n=n, spread=spread),
            synthetic("after", draws, n=n, spread=spread, factors=factors),
        ]
    )


@pytest.mark.parametrize(
    ("n", "factor", "spread", "limit", "status"),
    [
        (8, 2.0, 0.02, "makespan > 1.1", EXCEEDED),
        (8, 2.0, 0.02, "prefix smooth compute > 1.2", EXCEEDED),
        (8, 2.0, 0.02, "prefix smooth compute > 2.5", HOLDS),
        (8, 1.0, 0.02, "makespan > 1.1", HOLDS),
        (8, 1.0, 0.02, "prefix smooth compute > 1.1", HOLDS),
        (3, 2.0, 0.02, "makespan > 1.1", UNCLEAR),
        (3, 1.0, 0.02, "prefix smooth compute > 1.5", HOLDS),
        (1, 2.0, 0.02, "makespan > 1.1", UNCLEAR),
        (4, 6.0, 0.9, "prefix smooth compute > 1.01", UNCLEAR),
        (8, 2.0, 0.02, "prefix missing compute > 1.1", UNCLEAR),
        (8, 2.0, 0.02, "cause compute > 1.1", EXCEEDED),
        (8, 1.0, 0.02, "cause spill > 1.1", HOLDS),
        (8, 1.0, 0.02, "insight spill > 1.1", HOLDS),
        (8, 0.5, 0.02, "makespan > 0.9", HOLDS),
        (8, 0.97, 0.001, "makespan > 0.9", EXCEEDED),
        (8, 1.0, 0.001, "makespan > 0.9", EXCEEDED),
        (8, 1.0, 0.02, "prefix smooth tasks > 1.1", HOLDS),
        (8, 0.5, 0.02, "makespan > 1.1", HOLDS),
    ],
)
def test_limits(n: int, factor: float, spread: float, limit: str, status: int) -> None:
    [judgement] = compared(n, factor, spread).judge([limit])
    assert judgement.status == status, judgement.evidence
    assert judgement.limit.text == limit


@pytest.mark.parametrize(
    "text",
    ["", "makespan", "makespan < 2", "makespan > 0", "makespan > x", "prefix > 2", "speed > 2"],
)
def test_no_limits(text: str) -> None:
    with pytest.raises(UsageError, match="is no limit"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("text", "measure", "name", "ratio"),
    [
        ("makespan > 1.1", "makespan", "", 1.1),
        ("start-up>2", "start-up", "", 2),
        ("prefix read parquet compute > 1.2×", "compute", "read parquet", 1.2),
        ("prefix x compute per task > 1.5", "compute per task", "x", 1.5),
        ("cause waiting for a worker > 1.5", "critical path", "waiting for a worker", 1.5),
        ("insight spill > 1.5", "insight", "spill", 1.5),
    ],
)
def test_parsed_limits(text: str, measure: str, name: str, ratio: float) -> None:
    limit = parse_limit(text)
    assert (limit.measure, limit.name, limit.ratio) == (measure, name, ratio)


def test_a_limit_is_one_question_among_all_measures() -> None:
    """With 4 a side, p of a single prefix is at least 0.029: it would be lost among others."""
    draws = np.random.default_rng(4)
    before = synthetic("before", draws, n=4, spread=0.02)
    after = synthetic("after", draws, n=4, spread=0.02, factors={"smooth": 1.5})
    found = compare_groups([before, after])
    smooth = next(
        e for e in found.contrasts[0].effects if (e.measure, e.name) == ("compute", "smooth")
    )
    assert smooth.verdict == "outside the spread"
    limit = "prefix smooth compute > 1.2"
    [judgement] = found.judge([limit])
    assert judgement.status == EXCEEDED
    assert "more than noise (p = 0.029)" in judgement.evidence
    both = found.judge([limit, "prefix load compute > 1.2"])
    assert [each.status for each in both] == [EXCEEDED, HOLDS]


def test_more_than_nothing_exceeds_each_limit() -> None:
    """A cause that was not there before has no finite ratio."""
    draws = np.random.default_rng(4)
    before = synthetic("before", draws, n=4, spread=0.02)
    part = replace(before.runs[0].values.path[0], cause="spill", nanoseconds=10**9)
    after = Group(
        "after",
        tuple(
            replace(run, values=replace(run.values, path=(*run.values.path, part)))
            for run in synthetic("after", draws, n=4, spread=0.02).runs
        ),
    )
    [judgement] = compare_groups([before, after]).judge("cause spill > 1.5")
    assert judgement.status == EXCEEDED
    assert judgement.evidence.startswith("critical path spill: 0 ms → 1 s, more than noise")


@pytest.mark.parametrize(
    "text", ["cause trasnfer > 1.1", "worker-seconds idel > 1.1", "insight spil > 1.1"]
)
def test_names_that_do_not_exist(text: str) -> None:
    with pytest.raises(UsageError, match="There is no"):
        compared(2, 1.0).judge(text)


def test_each_cause_with_a_page_may_have_a_limit() -> None:
    pages = Path(__file__).parents[2] / "docs" / "causes"
    assert causes() == {page.stem for page in pages.glob("*.md")} - {"README", "measured"}


def test_a_run_that_did_not_finish_holds_no_limit() -> None:
    """Its makespan is short because it ended early."""
    draws = np.random.default_rng(4)
    before = synthetic("before", draws, n=8, spread=0.02)
    after = synthetic("after", draws, n=8, spread=0.02)
    failed = replace(after.runs[0], summary=replace(after.runs[0].summary, outcome="failed"))
    after = Group("after", (failed, *after.runs[1:]))
    [judgement] = compare_groups([before, after]).judge("makespan > 1.1")
    assert judgement.status == UNCLEAR
    assert judgement.evidence.endswith("; after-0 failed: leave it out (--exclude-spoiled).")


@pytest.mark.parametrize("n", [2, 3])
def test_few_runs_show_no_gain(n: int) -> None:
    """A limit below 1 asks for a gain, which so few runs cannot show."""
    for factor in (1.0, 0.5):
        [judgement] = compared(n, factor).judge("makespan > 0.9")
        assert judgement.status == UNCLEAR


def test_each_further_group_is_judged_and_named() -> None:
    draws = np.random.default_rng(4)
    factors = dict.fromkeys(("load", "smooth", "reduce", "combine"), 2.0)
    found = compare_groups(
        [
            synthetic("before", draws, n=8, spread=0.02),
            synthetic("same", draws, n=8, spread=0.02),
            synthetic("slow", draws, n=8, spread=0.02, factors=factors),
        ]
    )
    judged = found.judge("makespan > 1.1")
    assert [(each.second, each.status) for each in judged] == [("same", HOLDS), ("slow", EXCEEDED)]
    assert judgement_line(found, judged[1]).startswith(
        "makespan > 1.1 (slow against before): exceeded. makespan: "
    )


def test_one_group_has_no_limit() -> None:
    found = compare_groups([Group("runs", repeats("images"))])
    with pytest.raises(UsageError, match="two groups"):
        found.judge(["makespan > 1.1"])
