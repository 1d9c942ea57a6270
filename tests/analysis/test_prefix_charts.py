"""Durations and activity by prefix, against numpy and a count at each moment."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import Run, open_run
from dask_strata.analysis.prefixes.activity import STEPS, Activity, activity
from dask_strata.analysis.prefixes.durations import BINS_PER_DECADE, Box, durations
from dask_strata.analysis.timeline.timeline import Bars, Timeline, timeline
from tests.support.planned_runs import Plan, planned, write
from tests.support.synthetic import new_run


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a run."""
    return planned(21)


@pytest.fixture(scope="module")
def run(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the plan."""
    return open_run(write(tmp_path_factory.mktemp("planned") / "r", plan))


def quartiles(seconds: list[float]) -> list[float]:
    """Return the number and quartiles of durations, by numpy."""
    return [len(seconds), *np.quantile(seconds, [0, 0.25, 0.5, 0.75, 1]).tolist()]


def numbers(box: Box) -> list[float]:
    """Return the fields of a box."""
    return [box.n, box.low, box.q1, box.median, box.q3, box.high]


def test_durations_are_those_of_numpy(plan: Plan, run: Run) -> None:
    """Quartiles of prefixes and workers, and the counts of all bins."""
    by_prefix, by_worker = defaultdict(list), defaultdict(list)
    for task in plan.tasks:
        by_prefix[task.prefix].append((task.stop - task.start) / 1e3)
        by_worker[task.prefix, task.worker].append((task.stop - task.start) / 1e3)
    found = durations(run)
    order = sorted(by_prefix, key=lambda prefix: -sum(by_prefix[prefix]))
    assert [each.prefix for each in found.prefixes] == order
    assert found.n_other_prefixes == 0
    edges = 10.0 ** (np.arange(-30, 31) / BINS_PER_DECADE)
    for each in found.prefixes:
        seconds = by_prefix[each.prefix]
        assert numbers(each.box) == pytest.approx(quartiles(seconds))
        # Durations are whole milliseconds; those of a whole bin's edge are moved off it.
        counts, _ = np.histogram(np.array(seconds) * (1 + 1e-9), edges)
        expected = {k - 30: n for k, n in enumerate(counts.tolist()) if n}
        assert dict(each.bins) == expected
        medians = [box.box.median for box in each.workers]
        assert medians == sorted(medians, reverse=True)
        assert {box.worker for box in each.workers} == {
            worker for prefix, worker in by_worker if prefix == each.prefix
        }
        for box in each.workers:
            assert box.name == str(plan.workers.index(box.worker))
            assert numbers(box.box) == pytest.approx(quartiles(by_worker[each.prefix, box.worker]))


def test_prefixes_and_workers_beyond_the_limit_are_counted(plan: Plan, run: Run) -> None:
    """The longest prefixes and the slowest workers are kept."""
    whole = durations(run)
    module = "dask_strata.analysis.prefixes.durations"
    with mock.patch(f"{module}.MOST_PREFIXES", 2), mock.patch(f"{module}.MOST_WORKERS", 3):
        found = durations(run)
    assert [p.prefix for p in found.prefixes] == [p.prefix for p in whole.prefixes[:2]]
    assert found.n_other_prefixes == len({task.prefix for task in plan.tasks}) - 2
    for few, all_ in zip(found.prefixes, whole.prefixes, strict=False):
        assert few.workers == all_.workers[:3]
        assert few.n_other_workers == len(all_.workers) - 3


def test_a_slow_worker_is_first(tmp_path: Path) -> None:
    """A worker that takes ten times as long has the first box of each prefix."""
    made = planned(3, n_workers=4)
    slow = made.workers[2]
    tasks = [
        t if t.worker != slow else type(t)(**{**vars(t), "stop": t.start + 50 * (t.stop - t.start)})
        for t in made.tasks
    ]
    made.tasks[:] = tasks
    found = durations(open_run(write(tmp_path / "r", made)))
    assert {each.workers[0].worker for each in found.prefixes} == {slow}


def test_activity_is_the_number_that_ran(plan: Plan, run: Run) -> None:
    """Means of steps add up to the compute time; the most at once is that of a count."""
    drawn = timeline(run)
    found = activity(drawn, drawn.prefixes)
    check_activity(
        found,
        {
            prefix: [(t.start * 10**6, t.stop * 10**6) for t in plan.tasks if t.prefix == prefix]
            for prefix in drawn.prefixes
        },
    )
    assert found.n_other_prefixes == 0
    few = activity(drawn, ["p0"])
    assert [each.prefix for each in few.prefixes] == ["p0"]
    assert few.n_other_prefixes == len(drawn.prefixes) - 1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900), st.integers(0, 300)), max_size=30)
)
def test_any_activity(intervals: list[tuple[int, int, int]]) -> None:
    """The same for any intervals, also empty ones and those that touch."""
    made = drawn_of([(p, a * 10**6, (a + n) * 10**6) for p, a, n in intervals])
    wanted = {
        f"p{p}": [(a * 10**6, (a + n) * 10**6) for q, a, n in intervals if q == p]
        for p in {p for p, _, _ in intervals}
    }
    check_activity(activity(made, ["p0", "p1", "p2"]), wanted)


def check_activity(found: Activity, wanted: dict[str, list[tuple[int, int]]]) -> None:
    """Compare with a sum for each interval and step, and a count at each begin."""
    assert {each.prefix for each in found.prefixes} == set(wanted)
    assert [each.first for each in found.prefixes] == sorted(e.first for e in found.prefixes)
    for each in found.prefixes:
        intervals = wanted[each.prefix]
        assert each.first == min(a for a, _ in intervals)
        assert each.last == max(b for _, b in intervals)
        most = max(sum(a <= moment < b for a, b in intervals) for moment, _ in intervals)
        assert each.most == max(most, 1)
        assert len(each.running) == STEPS
        for step in range(0, STEPS, 7):
            low, high = found.begin + step * found.step, found.begin + (step + 1) * found.step
            time = sum(max(min(b, high) - max(a, low), 0) for a, b in intervals)
            assert each.running[step] == pytest.approx(time / found.step, abs=1e-6)
        total = sum(b - a for a, b in intervals)
        assert sum(each.running) * found.step == pytest.approx(total, rel=1e-6, abs=10)


def test_a_thread_runs_one_task_at_once() -> None:
    """Times on a thread that overlap by an error of the clock are not two tasks at once."""
    ms = 10**6
    jitter = [(0, 0, 300 * ms), (0, 288 * ms, 600 * ms), (0, 100 * ms, 500 * ms)]
    [found] = activity(drawn_of(jitter, rows=[0, 0, 1]), ["p0"]).prefixes
    assert (found.most, found.first, found.last) == (2, 0, 600 * ms)
    coroutines = [(0, 0, 300 * ms), (0, 100 * ms, 400 * ms), (0, 390 * ms, 395 * ms)]
    [found] = activity(drawn_of(coroutines, rows=[0, 0, 0]), ["p0"]).prefixes
    assert found.most == 2


def drawn_of(intervals: list[tuple[int, int, int]], rows: list[int] | None = None) -> Timeline:
    """Return a timeline of intervals: prefix, start, stop in ns; each has a row of its own."""
    column = np.array(intervals, np.int64).reshape(-1, 3)
    zero = np.zeros(len(column), np.int64)
    row = np.arange(len(column)) if rows is None else np.array(rows, np.int64)
    bars = Bars(
        row=row, start=column[:, 1], stop=column[:, 2], prefix=column[:, 0], outcome=zero,
        ran=zero + 1, nbytes=zero, read_bytes=zero, cpu=zero, other_cpu=zero, task=zero,
        client=zero, span=zero,
    )  # fmt: skip
    span = int(column[:, 2].max(initial=0))
    return Timeline(
        0, span, (), ("p0", "p1", "p2"), (), (), bars, None, None, 0, {}, {}, (zero, zero),  # type: ignore[arg-type]
        (zero, []), more_files=False,
    )  # fmt: skip


def test_a_run_without_tasks_has_no_charts(tmp_path: Path) -> None:
    """Nothing ran: no prefix, and no error."""
    run = open_run(new_run(tmp_path / "r"))
    assert durations(run).prefixes == ()
    assert activity(timeline(run), ["a"]).prefixes == ()
