"""Costs and thresholds of insights are within the makespan, on runs whose times are known."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.summary import Summary, summarize
from dask_strata.analysis.timeline.stragglers import stragglers
from tests.support.synthetic import SECOND, T0, Process, moves, new_run

if TYPE_CHECKING:
    from distributed import Client

W, V = "tcp://w:1", "tcp://w:2"


def at(seconds: float) -> int:
    """Return a time in ns since the epoch."""
    return T0 + round(seconds * SECOND)


def summary_of(  # noqa: PLR0913  tests choose what a run has
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    edges: list[tuple[str, str]] = (),
    threads: tuple[int, int] = (1, 2),
    blocks: list[tuple[str | None, float, float]] = (),
    removed: list[tuple[str, float]] = (),
    annotations: dict[str, str] | None = None,
    start: float = 0,
    stop: float = 10,
) -> Summary:
    """Return the summary of a run with two workers, which was recorded from start to stop.

    Parameters
    ----------
    folder : Path
        Its folder.
    rows : list of dict
        Transitions of the scheduler.
    edges : list of tuple, optional
        Keys, and the key that each depends on.
    threads : tuple of int, optional
        Threads of both workers.
    blocks : list of tuple, optional
        Blocks of event loops: worker or None, start and stop in seconds.
    removed : list of tuple, optional
        Workers that were removed unexpectedly, and when; the stimulus of each is its address.
    annotations : dict, optional
        Annotations of tasks as JSON, by key.
    start, stop : float, optional
        Times of the recording in seconds.
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", start=at(start))
    add = {"time": at(start), "action": "add"}
    gone = {"action": "remove", "reason": "unexpected: died"}
    scheduler.write(
        "worker_events",
        [{**add, "worker": w, "name": w[-1]} for w in (W, V)]
        + [{**gone, "time": at(t), "worker": w, "stimulus_id": w} for w, t in removed],
    )
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    keys = sorted({row["key"] for row in rows})
    noted = annotations or {}
    graph = [{"key": k, "prefix": k.split("-")[0], "annotations": noted.get(k)} for k in keys]
    scheduler.write("graph_tasks", graph)
    scheduler.write("graph_edges", [{"key": k, "dependency": d} for k, d in edges])
    processes = {None: scheduler}
    for n, worker in enumerate((W, V)):
        facts = {"address": worker, "name": worker[-1], "nthreads": threads[n], "start": at(start)}
        processes[worker] = Process(folder, f"worker-{n}", **facts)
    for worker, a, b in blocks:
        row = {"start": at(a), "stop": at(b), "worker": worker, "seconds": b - a}
        processes[worker].write("loop_blocks", [{**row, "frozen_seconds": 0.0, "cpu_seconds": b}])
    for process in processes.values():
        process.end(at=at(stop))
    return summarize(open_run(folder))


def task(  # noqa: PLR0913  a task has many times
    key: str,
    submitted: float,
    start: float,
    stop: float,
    worker: str,
    *parts: tuple[str, float, float],
    end: str = "memory",
) -> list[dict[str, Any]]:
    """Return the transitions of a task, with its phases.

    The end is memory, retried, or lost with its worker; after an attempt that was repeated, another
    one ends half a second later.
    """
    rows = moves(
        key,
        (submitted, "released", "waiting"),
        (start, "waiting", "processing"),
        (stop, "processing", "memory" if end == "memory" else "released"),
        worker=worker,
        thread=1,
        startstops=[[a, at(b), at(c) - at(b), None] for a, b, c in parts],
    )
    if end == "lost":
        rows[-1]["stimulus_id"] = worker
    elif end == "retried":
        rows[-1]["exception"] = "E()"
    if end != "memory":
        parts = (("compute", stop + 0.1, stop + 0.5),)
        rows += task(key, stop, stop, stop + 0.5, V, *parts)
    return rows


def causes(summary: Summary) -> list[str]:
    """Return the causes of the insights."""
    return [insight.cause for insight in summary.insights]


def assert_within_the_makespan(summary: Summary) -> None:
    """Assert that costs add up to at most the makespan: each second counts once."""
    costs = [insight.seconds or 0.0 for insight in summary.insights]
    assert all(cost >= 0 for cost in costs)
    assert sum(costs) <= summary.makespan_seconds * (1 + 1e-9)


#: A number, and the sign of a percentage.
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)( %)?")


def assert_same_text(first: str, second: str) -> None:
    """Assert that two texts are equal, apart from the last of 3 digits, or of a percentage."""
    assert _NUMBER.sub(r"1\2", first) == _NUMBER.sub(r"1\2", second)
    for (a, sign), (b, _) in zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True):
        a_value, b_value = (float(n.replace(",", "")) for n in (a, b))
        tolerance = {"rel": 0, "abs": 1} if sign else {"rel": 0.0101, "abs": 0}
        assert a_value == pytest.approx(b_value, **tolerance), (first, second)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("took 3.21 s, 12 % of it", "took 3.22 s, 13 % of it", True),
        ("1,234 tasks", "1,235 tasks", True),
        ("2 of 9 attempts", "3 of 9 attempts", False),
        ("took 3.21 s", "took 3.31 s", False),
        ("12 % of it", "14 % of it", False),
        ("took 3.21 s", "took 3.21 ms", False),
    ],
)
def test_texts_with_other_numbers_differ(first: str, second: str, *, same: bool) -> None:
    """The comparison of the tests below finds a wrong number."""
    if same:
        assert_same_text(first, second)
    else:
        with pytest.raises(AssertionError):
            assert_same_text(first, second)


def assert_same(one: Summary, other: Summary) -> None:
    """Assert that two runs have the same insights, apart from the last digit of numbers."""
    for a, b in zip(one.insights, other.insights, strict=True):
        for first, second in ((a.text, b.text), (a.evidence, b.evidence)):
            assert_same_text(first, second)
        assert a.seconds == pytest.approx(b.seconds)
        assert (a.cause, a.grave, len(a.intervals)) == (b.cause, b.grave, len(b.intervals))


def compute(key: str, a: float, b: float, worker: str, submitted: float = 0) -> list[dict]:
    """Return a task that is assigned when it starts."""
    return task(key, submitted, a, b, worker, ("compute", a, b))


def test_a_serial_chain_is_no_matter_of_placement(tmp_path: Path) -> None:
    """A chain of tasks on one of two workers cannot run on the other one meanwhile."""
    rows = [row for n in range(8) for row in compute(f"c{n}-1", n, n + 1, W)]
    edges = [(f"c{n + 1}-1", f"c{n}-1") for n in range(7)]
    found = summary_of(tmp_path / "r", rows, edges=edges)
    [chain] = found.insights
    assert chain.cause == "serial-chain"
    assert chain.seconds == pytest.approx(8 * 2 / 3)
    assert "67 % of all threads were idle" in chain.text


def test_tasks_behind_others_beside_idle_threads_are_badly_placed(tmp_path: Path) -> None:
    """The time to wait counts as far as other threads were idle, and names who was in front."""
    rows = [
        *task("a-1", 0, 0, 4, W, ("compute", 0, 4)),
        *task("b-1", 0, 0, 8, W, ("compute", 4, 8)),
    ]
    found = summary_of(tmp_path / "r", rows)
    assert causes(found) == ["placement", "too-few-tasks"]
    [placement, few] = found.insights
    assert (placement.seconds, few.seconds) == pytest.approx((4 * 2 / 3, 4 * 2 / 3))
    assert "`b` waited behind `a` on tcp://w:1" in placement.text
    [interval] = placement.intervals
    assert (interval.start, interval.stop) == (at(0), at(4))
    assert (interval.worker, interval.thread, interval.key) == (W, 1, "a-1")


def test_a_restriction_is_no_matter_of_placement(tmp_path: Path) -> None:
    """The same run, with tasks that may run on one worker only."""
    rows = [
        *task("a-1", 0, 0, 4, W, ("compute", 0, 4)),
        *task("b-1", 0, 0, 8, W, ("compute", 4, 8)),
    ]
    annotated = {"b-1": '{"workers": ["tcp://w:1"]}'}
    found = summary_of(tmp_path / "r", rows, annotations=annotated)
    assert causes(found) == ["restrictions", "too-few-tasks"]
    assert found.insights[0].seconds == pytest.approx(4 * 2 / 3)


def test_an_event_loop_that_was_blocked_before_the_first_task_costs_nothing(tmp_path: Path) -> None:
    """Blocks before and after a short run are no insight of it."""
    rows = compute("a-1", 5, 5.008, W, submitted=5)
    blocks = [(None, 1.0, 2.7), (W, 6.0, 9.0)]
    found = summary_of(tmp_path / "r", rows, blocks=blocks)
    assert not found.insights


def test_a_blocked_scheduler_costs_what_the_path_waited_for(tmp_path: Path) -> None:
    """Blocks while the path's task computes cost nothing, and those that delay the next task do."""
    rows = [*compute("a-1", 0, 3, W), *compute("b-1", 5, 8, W)]
    blocks = [(None, 1, 2), (None, 2.5, 4.75)]
    found = summary_of(tmp_path / "r", rows, edges=[("b-1", "a-1")], blocks=blocks)
    loop = next(i for i in found.insights if i.cause == "blocked-loop")
    assert "the event loop of the scheduler was blocked for 3.25 s" in loop.text
    assert "the longest 2.25 s" in loop.evidence
    assert loop.seconds == pytest.approx(1.75)
    assert found.path_seconds["blocked event loop"] == pytest.approx(1.75)
    assert found.path_seconds["scheduler"] == pytest.approx(0.25)


def test_a_retried_attempt_costs_its_time_on_the_path(tmp_path: Path) -> None:
    """The run would have been shorter by the failed attempt."""
    rows = task("a-1", 0, 0, 3, W, ("compute", 0, 3), end="retried")
    found = summary_of(tmp_path / "r", rows)
    assert found.insights[0].cause == "retries"
    assert found.insights[0].seconds == pytest.approx(3)
    assert "1 attempt failed and was repeated: 1 × E" in found.insights[0].text


def test_a_run_without_results_has_only_faults(tmp_path: Path) -> None:
    """Without a critical path there is no makespan, and nothing has a cost."""
    rows = moves("a-1", (1, "released", "waiting"), (1, "waiting", "processing"))
    found = summary_of(tmp_path / "r", rows, blocks=[(None, 2, 9)], removed=[(W, 3)])
    [insight] = found.insights
    assert insight.text.startswith("1 worker ended unexpectedly: 1 lost the connection")
    assert insight.grave
    assert insight.seconds is None


def nap(*_: Any) -> tuple[float, float]:
    """Compute for 0.4 s; return when."""
    start = time.time()
    time.sleep(0.4)
    return start, time.time()


@pytest.mark.long
def test_restrictions_of_a_cluster(client: Client, tmp_path: Path) -> None:
    """Tasks wait for one of two workers; a chain of tasks has nothing that waits."""
    chosen = min(client.nthreads())
    client.run(nap)  # the workers import this module
    with dask_strata.record(tmp_path / "crowd", client=client) as run:
        tasks = [client.submit(nap, n, pure=False, workers=[chosen]) for n in range(10)]
        times = client.gather(tasks)
    starts = sorted(start for start, _ in times)
    found = summarize(run).insights
    assert found[0].cause == "restrictions"
    # While a task waited, both threads of the other worker were idle: a half of all.
    assert found[0].seconds == pytest.approx((starts[-1] - starts[0]) / 2, abs=0.4)
    with dask_strata.record(tmp_path / "chain", client=client) as run:
        task = client.submit(nap, pure=False)
        for _ in range(6):
            task = client.submit(nap, task, pure=False)
        task.result()
    assert [i.cause for i in summarize(run).insights] == ["serial-chain"]


_TIMES = st.integers(0, 9000).map(lambda t: t / 1000)
_PARTS = st.lists(
    st.tuples(st.sampled_from(["compute", "transfer", "deserialize", "disk-read"]), _TIMES, _TIMES),
    max_size=4,
).map(lambda parts: [(a, *sorted(t)) for a, *t in parts])
_TASKS = st.lists(
    st.tuples(
        st.tuples(_TIMES, _TIMES, _TIMES).map(sorted),
        st.sampled_from([W, V]),
        _PARTS,
        st.sampled_from(["memory", "memory", "retried", "lost", "running"]),
    ),
    min_size=1,
    max_size=6,
)
_BLOCKS = st.lists(st.tuples(st.sampled_from([None, W]), _TIMES, _TIMES), max_size=3)

CHAIN = [([0, n, n + 1], W, [("compute", n, n + 1)], "memory") for n in range(6)]
CROWD = [([0, 0, n + 1], W, [("compute", n, n + 1)], "memory") for n in range(6)]
RETRIED = [([0, 0, n + 3], V, [("compute", 0, n + 3)], "retried") for n in range(4)]


def test_the_median_of_stragglers_is_of_attempts_that_ended(tmp_path: Path) -> None:
    """In a run that still goes on, a function that has not ended changes no median."""
    run = new_run(tmp_path / "live")
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    add = {"time": T0, "action": "add", "worker": W, "name": "1"}
    scheduler.write("worker_events", [add])
    ended = [row for n in range(4) for row in compute(f"p-{n}", 0, 1, W)]
    ended += compute("p-late", 0, 8, W)
    running = [compute(f"p-runs{n}", 7.9, 9, W)[:2] for n in range(6)]
    rows = [row | {"prefix": "p"} for row in (*ended, *(row for rows in running for row in rows))]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    worker = Process(run, "worker-1", address=W, name="1", nthreads=12)
    states = ("released", "waiting", "ready", "executing")
    worker.write(
        "worker_transitions",
        [
            {"time": at(9), "worker": W, "key": f"p-runs{n}"}
            | {"stimulus_id": f"compute-task-{at(9) / SECOND}"}
            | {"start_state": states[step], "finish_state": states[step + 1]}
            for n in range(6)
            for step in range(3)
        ],
    )
    scheduler.write("scheduler_samples", [{"time": at(9.1)}])
    opened = open_run(run)
    assert opened.state == "recording"
    of_running = "select compute_seconds as s from attempts where outcome = 'running'"
    assert [row["s"] for row in opened.rows(of_running)] == [pytest.approx(0.1)] * 6
    [late] = stragglers(opened)
    assert (late.key, late.seconds, late.median_seconds) == ("p-late", 8, 1)


@pytest.mark.long
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(tasks=CHAIN, edges=[(1, 0), (2, 1), (3, 2)], blocks=[(None, 1.0, 5.0)], idle=25.0)
@example(tasks=CROWD, edges=[], blocks=[(None, 0.1, 1.5), (W, 2.0, 4.0)], idle=25.0)
@example(tasks=RETRIED, edges=[], blocks=[], idle=25.0)
@given(
    tasks=_TASKS,
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
    blocks=_BLOCKS,
    idle=st.floats(0.5, 1000),
)
def test_idle_time_before_and_after_changes_no_insight(tasks, edges, blocks, idle) -> None:
    """Insights are those of the makespan, and their costs are shares of it."""
    rows = []
    for n, (times, worker, parts, end) in enumerate(tasks):
        of_task = task(f"k{n}-1", *times, worker, *parts, end="memory" if end == "running" else end)
        rows += of_task[:2] if end == "running" else of_task
    last = max(row["time"] - T0 for row in rows) / SECOND
    disjoint, reach = [], dict.fromkeys([None, W], 0.0)
    for worker, a, b in sorted(blocks, key=lambda block: min(block[1:])):
        a, b = max(min(a, b), reach[worker]), max(a, b)  # noqa: PLW2901  made disjoint
        if b > a:
            disjoint.append((worker, a, b))
            reach[worker] = b
    facts = {"edges": [(f"k{a}-1", f"k{b}-1") for a, b in edges]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = summary_of(folder / "plain", rows, blocks=disjoint, stop=max(10, last), **facts)
        assert_within_the_makespan(plain)
        if not plain.makespan_seconds:
            return
        disjoint += [(None, 20.5, 20.5 + idle / 2), (W, -idle / 2, -idle / 4)]
        stop = 21 + idle
        longer = summary_of(
            folder / "longer", rows, blocks=disjoint, start=-idle, stop=stop, **facts
        )
        assert_within_the_makespan(longer)
        assert_same(plain, longer)
