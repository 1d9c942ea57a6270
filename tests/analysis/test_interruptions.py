"""Who held the GIL on the critical path: the garbage collector, one task, several, or the loop."""

from __future__ import annotations

import gc
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.critical_path.data import PathData
from dask_strata.analysis.critical_path.occupants import Occupants
from dask_strata.analysis.critical_path.walk import Segment
from tests.conftest import rows, wait_until
from tests.support.synthetic import SECOND, T0, Process, life, new_run

W = "tcp://w:1"
A, B, LOOP = 11, 12, 99
RUN_IDS = {"a": 1, "b": 2, "c": 3}

#: Parts of a segment: seconds from its start, kind of the occupant, and key.
Parts = list[tuple[float, str, str | None]]


def at(seconds: float) -> int:
    """Return a time of the synthetic run."""
    return T0 + int(seconds * SECOND)


def sampled(
    key: str, last: float, seconds: float, waiting: str | None, cpu: float
) -> dict[str, Any]:
    """Return a row of samples of a task, about the time before the last sample."""
    times = {"first": at(last), "last": at(last)}
    return {
        "key": key,
        "worker": W,
        "run_id": RUN_IDS[key],
        "waiting": waiting,
        "n_samples": 1,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "delay_seconds": 0.0,
        **times,
    }


def collection(start: float, stop: float, thread: int, key: str | None = None) -> dict[str, Any]:
    """Return a row of a full collection in the worker."""
    return {
        "start": at(start),
        "stop": at(stop),
        "worker": W,
        "generation": 2,
        "seconds": stop - start,
        "thread": thread,
        "key": key,
        "run_id": None if key is None else RUN_IDS[key],
    }


def block(
    start: float, stop: float, frozen: float, cpu: float, worker: str | None = W
) -> dict[str, Any]:
    """Return a row of a block of an event loop."""
    return {
        "start": at(start),
        "stop": at(stop),
        "worker": worker,
        "seconds": stop - start,
        "frozen_seconds": frozen,
        "cpu_seconds": cpu,
    }


def recorded(folder: Path, **tables: list[dict[str, Any]]) -> Run:
    """Make a run in which a and b compute from 1 to 9 s, and the coroutine c from 5 to 6 s."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", pid=1)
    transitions = []
    for key, start, stop, thread in (("a", 1, 9, A), ("b", 1, 9, B), ("c", 5, 6, LOOP)):
        transitions += life(key, start, stop, W, run_id=RUN_IDS[key])
        transitions[-1]["thread"] = thread
    scheduler.write("scheduler_transitions", sorted(transitions, key=lambda row: row["time"]))
    for_scheduler = [row for row in tables.get("loop_blocks", []) if row["worker"] is None]
    if for_scheduler:
        scheduler.write("loop_blocks", for_scheduler)
    scheduler.end()
    worker = Process(folder, "worker-1", address=W, pid=2)
    worker.write("process_threads", [{"time": T0, "thread": LOOP, "purpose": "event loop"}])
    for table, found in tables.items():
        own = [row for row in found if row["worker"] is not None]
        if own:
            worker.write(table, own)
    worker.end()
    return open_run(folder)


def parts(run: Run, cause: str, start: float, stop: float, thread: int = A) -> Parts:
    """Return the parts of a segment of a, or of an event loop."""
    key = "a" if cause == "compute" else None
    attempt = rows(run, "select attempt from attempts where key = 'a'")[0]["attempt"]
    segment = Segment(
        at(start),
        at(stop),
        cause,
        attempt=attempt,
        key=key,
        prefix="a",
        worker=W,
        thread=thread,
    )
    found = Occupants(PathData(run)).of([segment])
    assert found[0].start == segment.start
    assert found[-1].stop == segment.stop
    assert all(x.stop == y.start for x, y in itertools.pairwise(found))
    return [
        ((each.start - segment.start) / SECOND, each.occupant.kind, each.occupant.name)
        for each in found
        if each.occupant is not None
    ]


def test_a_collection_on_a_tasks_thread_stops_the_task(tmp_path: Path) -> None:
    """One on another thread does only if samples of the task wait for the GIL meanwhile."""
    run = recorded(
        tmp_path / "r",
        gc_pauses=[
            collection(2, 3, A, "a"),
            collection(4, 4.5, B, "b"),
            collection(6, 7, B, "b"),
        ],
        task_samples=[sampled("a", 4.5, 0.5, None, 0.5), sampled("a", 7, 1.0, "gil", 0.0)],
    )
    assert parts(run, "compute", 1, 9) == [
        (0.0, "task", "a"),
        (1.0, "gc", "a"),
        (2.0, "task", "a"),
        (5.0, "gc", "b"),
        (6.0, "task", "a"),
    ]
    assert parts(run, "compute", 2.5, 2.75) == [(0.0, "gc", "a")]


def test_a_wait_for_a_thread_names_the_collections_on_it(tmp_path: Path) -> None:
    """The task on the thread, and the collector while it stopped this task."""
    run = recorded(tmp_path / "r", gc_pauses=[collection(2, 3, A, "a"), collection(4, 5, B, "b")])
    assert parts(run, "waiting for a worker", 1, 9) == [
        (0.0, "task", "a"),
        (1.0, "gc", "a"),
        (2.0, "task", "a"),
    ]


def test_a_blocked_loop_names_the_collector_or_code_on_the_loop(tmp_path: Path) -> None:
    """Other threads could run: a coroutine, else the worker itself blocked it, not a task."""
    run = recorded(
        tmp_path / "r",
        loop_blocks=[block(2, 3, 0.0, 1.0), block(5, 6, 0.0, 0.9), block(7, 8, 1.0, 1.0)],
        gc_pauses=[collection(7, 7.9, LOOP)],
        task_samples=[sampled("a", 3, 1.0, None, 0.9)],
    )
    assert parts(run, "blocked event loop", 2, 3) == [(0.0, "worker", W)]
    assert parts(run, "blocked event loop", 5, 6) == [(0.0, "task", "c")]
    assert parts(run, "blocked event loop", 7, 7.9) == [(0.0, "gc", None)]


@pytest.mark.parametrize(
    ("samples", "cpu", "expected"),
    [
        # One had the CPU, the other waited.
        ([("a", "gil", 0.0), ("b", None, 0.9)], 0.95, ("task", "b")),
        # Both had it in turns.
        ([("a", None, 0.4), ("b", None, 0.45)], 0.95, ("gil", None)),
        # The process had it, and both waited: code of the loop, or of a library's thread.
        ([("a", "gil", 0.0), ("b", "gil", 0.0)], 0.95, ("worker", W)),
        # Nothing shows who it was: the task that ran longest, as before.
        ([], None, ("task", "a")),
    ],
)
def test_a_frozen_block_names_who_had_the_cpu(
    tmp_path: Path, samples: list[Any], cpu: float | None, expected: tuple[str, str | None]
) -> None:
    """No thread but one could run Python."""
    run = recorded(
        tmp_path / "r",
        loop_blocks=[block(2, 3, 1.0, cpu or 0.0)],
        task_samples=[sampled(key, 3, 1.0, waiting, own) for key, waiting, own in samples],
    )
    assert parts(run, "blocked event loop", 2, 3) == [(0.0, *expected)]


def test_samples_that_are_apart_count_for_what_others_leave(tmp_path: Path) -> None:
    """A stopped task ran at the same line before and after: one row has these samples."""
    before_and_after = {**sampled("a", 8.9, 6.0, None, 6.0), "first": at(1.1), "n_samples": 70}
    run = recorded(
        tmp_path / "r",
        loop_blocks=[block(2, 3, 1.0, 0.95)],
        task_samples=[
            before_and_after,
            sampled("a", 3, 1.0, "gil", 0.0),
            sampled("b", 3, 1.0, None, 0.9),
        ],
    )
    assert parts(run, "compute", 2, 3) == [(0.0, "task", "b")]


def test_a_task_that_waits_for_the_gil_names_its_holder(tmp_path: Path) -> None:
    """A process that did not run had no holder; gilknocker shows one that slept with the GIL."""
    stopped = [sampled(key, last, 1.0, "gil", 0.0) for key in "ab" for last in (6.0, 8.0)]
    run = recorded(
        tmp_path / "r",
        loop_blocks=[block(2, 3, 1.0, 0.95), block(5, 6, 1.0, 0.0), block(7, 8, 1.0, 0.0)],
        task_samples=[
            sampled("a", 3, 1.0, "gil", 0.0),
            sampled("b", 3, 1.0, None, 0.9),
            *stopped,
        ],
        gil_contention=[
            {"start": at(7), "stop": at(8), "worker": W, "contention": 0.9, "seconds": 0.9}
        ],
    )
    assert parts(run, "compute", 1, 9) == [
        (0.0, "task", "a"),
        (1.0, "task", "b"),
        (2.0, "task", "a"),
        (6.0, "gil", None),
        (7.0, "task", "a"),
    ]


def test_a_blocked_scheduler_is_no_task_of_the_worker(tmp_path: Path) -> None:
    """Its block is on record, and the worker has none."""
    run = recorded(tmp_path / "r", loop_blocks=[block(2, 3, 0.0, 1.0, worker=None)])
    assert parts(run, "blocked event loop", 2, 3) == [(0.0, "scheduler", None)]


@pytest.mark.parametrize(("seconds", "cause"), [(2.0, "gc"), (0.25, None)])
def test_the_insight_costs_what_the_path_waited_for(
    tmp_path: Path, seconds: float, cause: str | None
) -> None:
    """Collections of less than 5 % of the makespan are none; the sum of all parts is exact."""
    run = recorded(
        tmp_path / "r",
        gc_pauses=[collection(2, 2 + seconds, A, "a"), collection(5, 5 + seconds, B, "b")],
    )
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    found = {insight.cause: insight for insight in run.insights()}
    assert ("gc" in found) is (cause == "gc")
    if cause:
        insight = found["gc"]
        assert insight.seconds == pytest.approx(seconds)
        assert "stopped worker" in insight.text
        assert "for 4 s, mostly in full collections" in insight.text
        assert "begun by `" in insight.text
        assert (Path(dask_strata.__file__).parents[2] / insight.docs).exists()


def burn(seconds: float, begun: Path | None = None) -> float:
    """Run Python; return the time at the end. A file shows that it has begun."""
    stop = time.perf_counter() + seconds
    if begun is not None:
        begun.touch()
    while time.perf_counter() < stop:
        sum(range(100))
    return time.time()


def collect(n: int) -> float:
    """Collect with many containers alive, several times; return the seconds."""
    gc.disable()
    held = [[i] for i in range(n)]
    start = time.perf_counter()
    for _ in range(3):
        gc.collect()
    seconds = time.perf_counter() - start
    gc.enable()
    assert held
    return seconds


def hold_the_gil(n: int) -> float:
    """Hold the GIL in one call of a C function; return the seconds."""
    start = time.perf_counter()
    sum(range(n))
    return time.perf_counter() - start


@pytest.mark.long
@pytest.mark.alone
def test_a_real_task_was_stopped_by_two_others(tmp_path: Path) -> None:
    """Its time on the path has their occupants, for about as long as they measured themselves."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path / "run", client=client) as run,
    ):
        client.submit(burn, 0.1).result()
        last = client.submit(burn, 6, tmp_path / "begun", key="last")
        wait_until((tmp_path / "begun").exists)
        held = client.submit(hold_the_gil, 60_000_000, key="held").result()
        collected = client.submit(collect, 2_000_000, key="collected").result()
        last.result()
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    of_last = [s for s in path.segments if s.key == "last" and s.cause == "compute"]
    named: dict[tuple[str, str | None], float] = {}
    for segment in of_last:
        occupant = segment.occupant
        assert occupant is not None
        who = occupant.kind, occupant.name
        named[who] = named.get(who, 0.0) + segment.seconds
    assert named["gc", "collected"] == pytest.approx(collected, rel=0.3)
    assert named["task", "held"] == pytest.approx(held, rel=0.3)
