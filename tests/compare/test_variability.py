"""The spread of one group, and what explains it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.compare.variability import describe
from dask_strata.analysis.overview.comparable import Place, Sample, SizeSums
from tests.support.repeats import WORKLOADS, repeats, synthetic

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_real_repeats(workload: str) -> None:
    runs = repeats(workload)
    found = describe(Group("runs", runs))
    makespan = next(s for s in found.spreads if s.measure == "makespan")
    seconds = [run.makespan_seconds for run in runs]
    assert (makespan.least, makespan.most) == (min(seconds), max(seconds))
    assert makespan.median == pytest.approx(float(np.median(seconds)))
    assert found.fastest == runs[seconds.index(min(seconds))].name
    assert found.slowest == runs[seconds.index(max(seconds))].name
    assert found.split.difference_seconds == pytest.approx(max(seconds) - min(seconds), abs=1e-6)
    assert found.schedule.n_tasks > 50
    assert found.schedule.order is not None
    by_run = [each for each in found.explained if each.prefix and each.by == "run"]
    assert {each.prefix for each in by_run} <= set(runs[0].values.prefixes)
    assert by_run


def _with(run: ComparedRun, i: int, **values) -> ComparedRun:
    summary = replace(run.summary, run_id=f"{i}", start=START + timedelta(hours=2 * i))
    return replace(run, name=f"r{i:02}", summary=summary, values=replace(run.values, **values))


def _place(prefix: str, host: str, worker: str, seconds: np.ndarray) -> Place:
    logs = np.log(seconds)
    return Place(
        prefix, host, worker, len(logs), float(seconds.sum()), float(logs.sum()), float(logs @ logs)
    )


def test_a_slow_host_explains_the_variance() -> None:
    """The share is that of a regression on the host, computed from the single durations."""
    draws, runs, values, hosts = np.random.default_rng(0), [], [], []
    [base] = synthetic("base", draws, n=1).runs
    for i in range(6):
        fast = np.exp(draws.normal(0, 0.1, 30))
        slow = np.exp(draws.normal(0.5, 0.1, 30))
        values += [np.log(fast), np.log(slow)]
        hosts += [np.zeros(30), np.ones(30)]
        places = (_place("x", "n1", "0", fast), _place("x", "n2", "1", slow))
        runs.append(_with(base, i, places=places, sizes=()))
    explained = {e.by: e.share for e in describe(Group("g", tuple(runs))).explained if e.prefix}
    y, x = np.concatenate(values), np.concatenate(hosts)
    assert explained["host"] == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, abs=0.01)
    assert explained["host"] > 0.8
    assert explained["run"] < 0.05


def test_input_sizes_explain_the_variance() -> None:
    draws = np.random.default_rng(0)
    [base] = synthetic("base", draws, n=1).runs
    runs, xs, ys = [], [], []
    for i in range(3):
        x = draws.uniform(1, 10, 40)
        y = 0.5 * x + draws.normal(0, 0.5, 40)
        xs.append(x)
        ys.append(y)
        sums = SizeSums("x", 40, x.sum(), y.sum(), x @ x, x @ y, y @ y)
        runs.append(_with(base, i, sizes=(sums,), places=()))
    [found] = [e for e in describe(Group("g", tuple(runs))).explained if e.by == "input size"]
    expected = np.corrcoef(np.concatenate(xs), np.concatenate(ys))[0, 1] ** 2
    assert found.share == pytest.approx(expected, abs=0.01)


def test_a_trend_over_the_runs_is_told() -> None:
    draws = np.random.default_rng(0)
    [base] = synthetic("base", draws, n=1, spread=0.0).runs
    runs = [
        _with(
            base,
            i,
            path=tuple(
                replace(p, nanoseconds=round(p.nanoseconds * (1 + 0.1 * i)))
                for p in base.values.path
            ),
        )
        for i in range(12)
    ]
    explained = {e.by: e for e in describe(Group("g", tuple(runs))).explained if not e.prefix}
    assert explained["order"].share > 0.95
    assert explained["order"].n == 12
    # 12 runs each two hours: a straight line is no daily curve, but half of it looks like one.
    hours = np.arange(12) * 2 * np.pi / 12
    y = np.log(1 + 0.1 * np.arange(12))
    curve = np.stack([np.ones(12), np.sin(hours), np.cos(hours)], axis=1)
    left = y - curve @ np.linalg.lstsq(curve, y, rcond=None)[0]
    share = 1 - (left @ left) / ((y - y.mean()) @ (y - y.mean()))
    assert explained["time of day"].share == pytest.approx(1 - (1 - share) * 11 / 9)


def test_runs_of_one_hour_around_midnight_have_no_time_of_day() -> None:
    [base] = synthetic("base", np.random.default_rng(0), n=1, spread=0.0).runs
    runs = []
    for i in range(12):
        path = tuple(replace(p, nanoseconds=p.nanoseconds * (1 + i)) for p in base.values.path)
        run = _with(base, i, path=path)
        start = START - timedelta(minutes=30) + timedelta(minutes=5 * i)
        runs.append(replace(run, summary=replace(run.summary, start=start)))
    found = describe(Group("g", tuple(runs))).explained
    assert "time of day" not in {each.by for each in found}


def _sampled(run: ComparedRun, i: int, workers: list[int], order: list[int]) -> ComparedRun:
    return _with(run, i, sample=Sample(tuple(range(len(workers))), tuple(workers), tuple(order)))


def test_placement_and_order_are_told_apart() -> None:
    [base] = synthetic("base", np.random.default_rng(0), n=1).runs
    workers, order = [i % 2 for i in range(40)], list(range(40))
    renamed = [1 - w for w in workers]
    same = describe(
        Group("g", (_sampled(base, 0, workers, order), _sampled(base, 1, renamed, order)))
    ).schedule
    assert same.placement == pytest.approx(1.0)
    assert same.order == pytest.approx(1.0)
    blocks = [i // 20 for i in range(40)]
    other = describe(
        Group("g", (_sampled(base, 0, workers, order), _sampled(base, 1, blocks, order[::-1])))
    ).schedule
    assert other.placement == pytest.approx(0.0, abs=0.06)
    assert other.order == pytest.approx(-1.0)


def test_runs_without_common_tasks_have_no_schedule() -> None:
    [base] = synthetic("base", np.random.default_rng(0), n=1).runs
    one = _sampled(base, 0, [0] * 20, list(range(20)))
    other = _with(base, 1, sample=Sample(tuple(range(100, 120)), (0,) * 20, tuple(range(20))))
    found = describe(Group("g", (one, other))).schedule
    assert (found.n_tasks, found.placement, found.order) == (0, None, None)
