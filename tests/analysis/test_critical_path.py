"""The critical path, idle time and insights of synthetic runs, for which they are known."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_strata import open_run
from dask_strata.analysis.breakdown import PREFIX_KINDS, breakdown
from dask_strata.analysis.critical_path.data import crowded
from dask_strata.analysis.critical_path.walk import CAUSES, CriticalPath, critical_path
from dask_strata.analysis.idleness import idle_workers
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.timeline.stragglers import stragglers
from tests.support.synthetic import SECOND, T0, Process, moves, new_run, small_run

W, V = "tcp://w:1", "tcp://w:2"


def made(
    folder: Path,
    rows: list[dict],
    *,
    edges: list[tuple[str, str]] = (),
    workers: dict[str, int] | None = None,
    sent: list[float] = (),
) -> Path:
    """Make a run of 10 s from the scheduler's transitions, the graph and the workers' threads."""
    new_run(folder)
    workers = workers or {W: 1}
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": w, "name": w[-1], "action": "add"} for w in workers],
    )
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    keys = {row["key"] for row in rows}
    scheduler.write("graph_tasks", [{"key": k, "prefix": k.split("-")[0]} for k in sorted(keys)])
    if edges:
        scheduler.write("graph_edges", [{"key": k, "dependency": d} for k, d in edges])
    scheduler.end()
    if sent:
        client = Process(folder, "client-1")
        client.write("client_submissions", [{"time": T0 + int(t * SECOND)} for t in sent])
        client.end()
    for n, (w, threads) in enumerate(workers.items()):
        Process(folder, f"worker-{n}", address=w, name=w[-1], nthreads=threads).end()
    return folder


def intervals(*parts: tuple[str, float, float]) -> list[list]:
    """Return startstops: action, from, to in seconds."""
    return [[action, T0 + int(a * SECOND), int((b - a) * SECOND), None] for action, a, b in parts]


def task(key: str, times: tuple[float, float, float], worker: str, *parts) -> list[dict]:
    """Return the transitions of a task: submitted, assigned, finished; with its phases."""
    submitted, start, stop = times
    return moves(
        key,
        (submitted, "released", "waiting"),
        (start, "waiting", "processing"),
        (stop, "processing", "memory"),
        worker=worker,
        thread=1,
        startstops=intervals(*parts),
    )


def assert_tiled(path: CriticalPath) -> None:
    """Assert that the segments follow each other, and add up to the makespan."""
    for a, b in zip(path.segments, path.segments[1:], strict=False):
        assert a.stop == b.start
    assert all(s.stop > s.start and s.cause in CAUSES for s in path.segments)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)


def test_a_chain_of_two_tasks_is_its_phases_and_what_is_between(tmp_path: Path) -> None:
    """Compute, transfer, unpacking, disk and the scheduler's time each have their seconds."""
    rows = [
        *task("a-1", (1, 1, 3), W, ("compute", 1, 2.5)),
        *task(
            "b-1", (1, 3.25, 8), V, ("transfer", 3.25, 4.25), ("deserialize", 4.25, 4.5),
            ("disk-read", 4.5, 5), ("compute", 5, 8),
        ),
    ]  # fmt: skip
    folder = made(tmp_path / "r", rows, edges=[("b-1", "a-1")], workers={W: 1, V: 1})
    path = critical_path(open_run(folder))
    assert_tiled(path)
    assert path.makespan_seconds == pytest.approx(7)
    assert path.seconds == pytest.approx(
        {"compute": 4.5, "transfer": 1, "deserialize": 0.75, "scheduler": 0.75}
    )
    assert list(dict.fromkeys(s.key for s in path.segments)) == ["a-1", "b-1"]
    assert path.tasks == 2


def test_of_several_dependencies_the_last_result_counts(tmp_path: Path) -> None:
    """The path goes through the dependency that arrived last, on any worker."""
    rows = [
        *task("a-1", (1, 1, 2), W, ("compute", 1, 2)),
        *task("b-1", (1, 1, 5), V, ("compute", 1, 5)),
        *task("c-1", (1, 5, 6), W, ("compute", 5, 6)),
    ]
    edges = [("c-1", "a-1"), ("c-1", "b-1")]
    folder = made(tmp_path / "r", rows, edges=edges, workers={W: 1, V: 1})
    path = critical_path(open_run(folder))
    assert [s.key for s in path.segments] == ["b-1", "c-1"]
    assert path.seconds == pytest.approx({"compute": 5})


def test_attempts_that_took_no_time_take_none_on_the_path(tmp_path: Path) -> None:
    """Many results at the moment of their submissions divide the path as one of them does."""
    at_once = [row for n in range(50) for row in task(f"i-{n}", (5, 5, 5), V)]
    rows = [
        *task("a-1", (1, 1, 3), W, ("compute", 1, 3)),
        *at_once,
        *task("b-1", (7, 7, 9), W, ("compute", 7, 9)),
    ]
    path = critical_path(open_run(made(tmp_path / "r", rows, workers={W: 1, V: 1})))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"compute": 4, "nothing submitted": 4})
    assert [s.key for s in path.segments if s.cause == "compute"] == ["a-1", "b-1"]


def test_a_task_behind_others_waits_for_a_worker(tmp_path: Path) -> None:
    """A task that is queued, or assigned to a full worker, waits for a worker."""
    rows = [
        *task("a-1", (1, 1, 4), W, ("compute", 1, 4)),
        *task("b-1", (1, 1, 6), W, ("compute", 4, 6)),
    ]
    path = critical_path(open_run(made(tmp_path / "r", rows)))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"waiting for a worker": 3, "compute": 2})

    rows = task("c-1", (1, 1, 3.5), W, ("compute", 1, 3.5)) + moves(
        "q-1",
        (1, "released", "waiting"),
        (1, "waiting", "queued"),
        (3.5, "queued", "processing"),
        (6, "processing", "memory"),
        worker=W,
        startstops=intervals(("compute", 4, 6)),
    )
    path = critical_path(open_run(made(tmp_path / "q", rows)))
    assert path.seconds == pytest.approx(
        {"waiting for a worker": 2.5, "scheduler": 0.5, "compute": 2}
    )


def test_between_submissions_it_is_the_client_or_nobody(tmp_path: Path) -> None:
    """Without unfinished tasks the cause is that nothing is submitted; otherwise the client."""
    rows = [
        *task("a-1", (1, 1, 2), W, ("compute", 1, 2)),
        *task("slow-1", (1, 1, 3), V, ("compute", 1, 3)),
        *task("b-1", (6, 6, 7), W, ("compute", 6, 7)),
    ]
    folder = made(tmp_path / "r", rows, workers={W: 1, V: 1}, sent=[0.5, 5.5])
    path = critical_path(open_run(folder))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"compute": 3, "nothing submitted": 2.5, "client": 0.5})


def test_a_retry_comes_after_the_attempt_that_failed(tmp_path: Path) -> None:
    """Two attempts at one task are both on the path."""
    rows = moves(
        "a-1",
        (1, "released", "waiting"),
        (1, "waiting", "processing"),
        (3, "processing", "released"),
        (3, "released", "waiting"),
        (4, "waiting", "processing"),
        (6, "processing", "memory"),
        worker=W,
        startstops=intervals(("compute", 4, 6)),
    )
    rows[2] |= {"startstops": intervals(("compute", 1, 3)), "exception": "E", "worker": W}
    path = critical_path(open_run(made(tmp_path / "r", rows)))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"compute": 4, "scheduler": 1})
    assert [s.attempt for s in path.segments] == [1, 2, 2]


def test_nobody_waits_for_a_result_that_is_in_memory_until_it_is_lost(tmp_path: Path) -> None:
    """The time in which a result was in memory is no scheduling, if the task ran again later."""
    rows = moves(
        "a-1",
        (1, "released", "waiting"),
        (1, "waiting", "processing"),
        (2, "processing", "memory"),
        (7, "memory", "released"),
        (7, "released", "waiting"),
        (7.5, "waiting", "processing"),
        (8.5, "processing", "memory"),
        worker=W,
    )
    rows[2] |= {"startstops": intervals(("compute", 1, 2))}
    rows[6] |= {"startstops": intervals(("compute", 7.5, 8.5))}
    other = task("b-1", (1, 2, 4), W, ("compute", 2, 4))
    folder = made(tmp_path / "r", [*rows, *other], edges=[("b-1", "a-1")])
    path = critical_path(open_run(folder))
    assert_tiled(path)
    expected = {"compute": 4, "nothing submitted": 3, "scheduler": 0.5}
    assert path.seconds == pytest.approx(expected)
    assert [s.prefix for s in path.segments if s.cause == "compute"] == ["a", "b", "a"]


def test_clocks_that_disagree_leave_no_gap(tmp_path: Path) -> None:
    """Phases that end after their own report are shifted, not lost."""
    rows = task("a-1", (1, 1, 3), W, ("compute", 1.5, 3.5))
    path = critical_path(open_run(made(tmp_path / "r", rows)))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"compute": 2})


def test_runs_without_results_have_no_path(tmp_path: Path) -> None:
    """An empty run, and one whose only task never ended, have no makespan."""
    for name, rows in (("e", []), ("r", task("a-1", (1, 1, 2), W)[:2])):
        path = critical_path(open_run(made(tmp_path / name, rows)))
        assert path == CriticalPath((), {})
        assert path.makespan_seconds == path.share("compute") == 0


def test_shares_of_prefixes_add_up_to_the_whole(tmp_path: Path) -> None:
    """Thread-seconds of prefixes and idle time add up to threads times duration."""
    rows = [
        *task("a-1", (1, 1, 6), W, ("transfer", 1, 3), ("compute", 3, 6)),
        *task("b-1", (1, 1, 7), W, ("transfer", 1, 4), ("compute", 4, 7)),
        *task("b-2", (1, 1, 8), W, ("compute", 5, 8)),
    ]
    spent = breakdown(open_run(made(tmp_path / "r", rows, workers={W: 2})))
    by_prefix = {p.prefix: p.seconds for p in spent.prefixes}
    assert sum(p.total_seconds for p in spent.prefixes) + spent.seconds["idle"] == pytest.approx(20)
    # From 3 to 4 one computes and one fetches; from 5 to 6 three share two threads.
    assert by_prefix["a"] == pytest.approx(
        dict.fromkeys(PREFIX_KINDS, 0) | {"compute": 2 + 2 / 3, "transfer": 2}
    )
    assert by_prefix["b"]["transfer"] == pytest.approx(3)


def test_idle_threads_have_a_reason(tmp_path: Path) -> None:
    """Idle threads have no submitted work before and after all tasks, and too few beside one."""
    rows = task("a-1", (2, 2, 6), W, ("compute", 2, 6)) + task(
        "b-1", (2, 2, 8), W, ("compute", 6, 8)
    )
    found = idle_workers(open_run(made(tmp_path / "r", rows, workers={W: 1, V: 1})))
    assert [w.worker for w in found] == [V, W]
    assert found[0].seconds == pytest.approx(
        {"nothing submitted": 4, "tasks ready elsewhere": 4, "too few tasks at once": 2}
    )
    assert found[1].seconds == pytest.approx(
        {"nothing submitted": 4, "tasks ready elsewhere": 0, "too few tasks at once": 0}
    )
    assert found[0].idle_seconds == pytest.approx(10)


def test_insights_are_ranked_by_cost(tmp_path: Path) -> None:
    """Each insight has evidence and a command, and the most expensive is first."""
    rows = [r for n in range(5) for r in task(f"a-{n}", (0, n / 10, n / 10 + 0.1), W,
                                             ("compute", n / 10, n / 10 + 0.1))]  # fmt: skip
    rows += task("a-9", (0, 1, 9), W, ("compute", 1, 9))
    run = open_run(made(tmp_path / "r", rows, workers={W: 2}))
    late = stragglers(run)
    assert [(s.key, s.seconds, s.median_seconds) for s in late] == [("a-9", 8, 0.1)]
    found = summarize(run).insights
    straggler = next(f for f in found if "times the median" in f.text)
    assert straggler.seconds == pytest.approx(7.9)
    assert "a-9" in straggler.text
    assert all(f.evidence and f.command for f in found)
    costs = [f.seconds or 0 for f in found if not f.grave]
    assert costs == sorted(costs, reverse=True)


def test_a_small_run_has_a_path(tmp_path: Path) -> None:
    """Of two tasks side by side, the path is the one that ended last."""
    path = critical_path(open_run(small_run(tmp_path / "r")))
    assert path.seconds == pytest.approx({"compute": 4, "scheduler": 0.1, "client": 1})
    assert_tiled(path)


_TIMES = st.floats(0, 9, allow_nan=False).map(lambda t: round(t, 3))
_PARTS = st.lists(
    st.tuples(st.sampled_from(["compute", "transfer", "deserialize", "disk-read"]), _TIMES, _TIMES),
    max_size=4,
).map(lambda parts: [(a, *sorted(t)) for a, *t in parts])
_TASKS = st.lists(
    st.tuples(st.tuples(_TIMES, _TIMES, _TIMES), st.sampled_from([W, V]), _PARTS, st.booleans()),
    min_size=1,
    max_size=6,
)


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tasks=_TASKS, edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_segments_tile_the_makespan_whatever_the_record_says(tasks, edges) -> None:
    """Segments have no gap and no overlap, even for arbitrary transitions."""
    rows = [
        row
        for n, (times, worker, parts, done) in enumerate(tasks)
        for row in task(f"k{n}-1", tuple(sorted(times)), worker, *parts)[: 3 if done else 2]
    ]
    with tempfile.TemporaryDirectory() as folder:
        made_run = made(
            Path(folder) / "r", rows, edges=[(f"k{a}-1", f"k{b}-1") for a, b in edges],
            workers={W: 1, V: 2},
        )  # fmt: skip
        path = critical_path(open_run(made_run))
    assert_tiled(path)
    ended = [max(times) for times, _, _, done in tasks if done]
    if ended and path.segments:
        assert (path.segments[-1].stop - T0) / 1e9 == pytest.approx(max(ended))
        first = min(min(times) for times, *_ in tasks)
        assert (path.segments[0].start - T0) / 1e9 == pytest.approx(first)


def test_opening_a_file_is_io_where_it_is_known(tmp_path: Path) -> None:
    """The time in which a chunk's task opened its file is I/O, not compute."""
    rows = task("a-1", (1, 1, 4), W, ("compute", 1, 4))
    rows[-1]["run_id"] = 1
    folder = made(tmp_path / "r", rows)
    worker = Process(folder, "worker-9", address=W)
    of = {"execution": 1, "key": "a-1", "worker": W, "run_id": 1}
    worker.write(
        "executions",
        [{**of, "thread": 1, "kind": "thread", "start": T0 + SECOND, "stop": T0 + 4 * SECOND}],
    )
    where = {"uri": "/data/f.root", "tree": "Events"}
    worker.write("seen_chunks", [{**of, **where, "first": 0, "last": 10}])
    worker.write("library_reads", [{**of, "uri": where["uri"], "open_seconds": 0.5}])
    worker.end()
    path = critical_path(open_run(folder))
    assert_tiled(path)
    assert path.seconds == pytest.approx({"I/O": 0.5, "compute": 2.5})


def test_crowded_is_when_every_worker_that_is_there_is_full_or_none_is_there() -> None:
    """With two connected workers, one full worker is not crowded; with one it is."""
    at = np.array
    found = crowded(at([10, 20]), at([90, 90]), at([15, 25, 40]), at([30, 35, 50]))
    ends = np.iinfo(np.int64)
    pairs = [(int(a), int(b)) for a, b in zip(*found, strict=True) if a < b]
    assert pairs == [(ends.min, 10), (15, 20), (25, 30), (90, ends.max)]
    none = np.empty(0, np.int64)
    assert [x.tolist() for x in crowded(none, none, none, none)] == [[ends.min], [ends.max]]


def test_queued_while_a_thread_is_free_is_not_waiting_for_one(tmp_path: Path) -> None:
    """A task that is queued while the only worker is idle waits for the scheduler."""
    rows = [
        *moves("x", (1, "released", "waiting"), (1, "waiting", "queued")),
        *moves(
            "x",
            (3, "queued", "processing"),
            (5, "processing", "memory"),
            worker=W,
            startstops=intervals(("compute", 4, 5)),
        ),
    ]
    seconds = critical_path(open_run(made(tmp_path / "run", rows))).seconds
    assert "waiting for a worker" not in seconds
    assert seconds["scheduler"] == pytest.approx(3)
    assert seconds["compute"] == pytest.approx(1)


def test_a_worker_that_was_removed_holds_up_no_task(tmp_path: Path) -> None:
    """A paused worker that the scheduler removed goes on sampling: another worker is free."""
    rows = [
        *moves("x", (1, "released", "waiting"), (1, "waiting", "queued")),
        *moves(
            "x",
            (6, "queued", "processing"),
            (7, "processing", "memory"),
            worker=W,
            startstops=intervals(("compute", 6, 7)),
        ),
    ]
    run = made(tmp_path / "run", rows)
    scheduler = Process(run, "scheduler-2", address="tcp://s:1")
    changes = {0: "add", 3: "remove"}
    scheduler.write(
        "worker_events",
        [{"time": T0 + t * SECOND, "worker": V, "action": a} for t, a in changes.items()],
    )
    scheduler.end()
    worker = Process(run, "worker-9", address=V, nthreads=1)
    worker.write(
        "worker_samples",
        [
            {"time": T0 + t * SECOND // 2, "worker": V, "seen_by": "worker", "status": "paused"}
            for t in range(2, 10)
        ],
    )
    worker.end()
    assert critical_path(open_run(run)).seconds == pytest.approx({"scheduler": 5, "compute": 1})
