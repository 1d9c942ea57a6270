"""Long collections of the garbage collector, compared with the times of a callback of the test."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata.metrics import current_execution
from dask_strata.recorder.interruptions import gc_pauses
from dask_strata.recorder.interruptions.gc_pauses import LEAST_NS, GcPauses
from tests.conftest import rows

#: A collection as the callback here measures it: start and stop on the wall clock, generation.
Seen = tuple[int, int, int]

#: Greatest difference of two readings of a clock around the same event, in nanoseconds.
NEAR_NS = 5_000_000


@contextmanager
def watched() -> Iterator[list[Seen]]:
    """Measure all collections of this process that are far from the threshold."""
    found: list[Seen] = []
    began = [0]

    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            began[0] = time.time_ns()
        elif time.time_ns() - began[0] >= LEAST_NS:
            found.append((began[0], time.time_ns(), info["generation"]))

    gc.callbacks.append(callback)
    try:
        yield found
    finally:
        gc.callbacks.remove(callback)


def collect(n: int = 300_000) -> tuple[list[Seen], int]:
    """Collect with many containers alive; return the long collections, and this thread."""
    with watched() as found:
        held = [[i] for i in range(n)]
        gc.collect()
        del held
    return found, threading.get_ident()


def rows_of(source: GcPauses) -> list[dict[str, Any]]:
    """Return the rows of a source since the last call."""
    return [
        {name: batch.columns[name][i] for name in batch.columns}
        for batch in source.rows()
        for i in range(batch.n)
    ]


@pytest.fixture
def source() -> Iterator[GcPauses]:
    """Return a source of a run, which is removed afterwards."""
    found = GcPauses("run", "tcp://w:1")
    yield found
    found.remove()
    assert gc_pauses._on_collection not in gc.callbacks


def test_rows_are_the_long_collections(source: GcPauses) -> None:
    """Each has its times, generation and thread; short ones have no row."""
    truth, thread = collect()
    for _ in range(100):
        gc.collect(0)
    found = rows_of(source)
    assert truth
    assert len(found) == len(truth)
    for row, (start, stop, generation) in zip(found, truth, strict=True):
        assert abs(row["start"] - start) < NEAR_NS
        assert abs(row["stop"] - stop) < NEAR_NS
        assert row["seconds"] == pytest.approx((stop - start) / 1e9, abs=NEAR_NS / 1e9)
        assert (row["generation"], row["thread"]) == (generation, thread)
        assert (row["worker"], row["key"]) == ("tcp://w:1", None)
    assert rows_of(source) == []


def test_a_run_has_each_collection_once(source: GcPauses) -> None:
    """Recordings of another run have it, too; those of the same run follow each other."""
    second, other = GcPauses("run"), GcPauses("other")
    try:
        truth, _ = collect()
        assert [len(rows_of(each)) for each in (source, second, other)] == [
            len(truth),
            0,
            len(truth),
        ]
        source.remove()
        truth, _ = collect()
        assert [len(rows_of(each)) for each in (source, second)] == [0, len(truth)]
    finally:
        second.remove()
        other.remove()


def test_a_collection_belongs_to_the_execution_of_its_thread(source: GcPauses) -> None:
    """A key of any type is stored; a thread that a task left behind has none."""
    execution = SimpleNamespace(key=("x", 0), run_id=7, token=object())
    token = current_execution.set(execution)
    try:
        collect()
        found = rows_of(source)
        assert {(row["key"], row["run_id"]) for row in found} == {("\x00tuple\x00('x', 0)", 7)}
        execution.token = None
        collect()
        assert {(row["key"], row["run_id"]) for row in rows_of(source)} == {(None, None)}
    finally:
        current_execution.reset(token)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_is_not_recorded(source: GcPauses) -> None:
    """The child has no callback, and its collections do not reach the parent."""
    child = os.fork()
    if child == 0:
        left = gc_pauses._on_collection in gc.callbacks or source._pauses
        collect()
        os._exit(1 if left or source._pauses else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc_pauses._on_collection in gc.callbacks


def test_collections_within_the_recorders_own_locks_do_not_block(source: GcPauses) -> None:
    """Any allocation may begin a collection, also one of a thread that holds the lock."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            GcPauses("run").remove()
            rows_of(source)
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.long
def test_collections_of_tasks_scheduler_and_client_are_on_record(tmp_path: Path) -> None:
    """A task's have its attempt; those of scheduler and client in one process count once."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as run,
    ):
        truth, thread = client.submit(collect, key="collect-1").result()
        own, _ = collect()
    found = rows(
        run,
        "select epoch_ns(g.start) as start, epoch_ns(g.stop) as stop, g.generation, g.thread, "
        "g.worker, a.key, a.worker as of_attempt "
        "from gc_pauses g left join attempts a on a.key = g.key and a.run_id = g.run_id "
        "order by g.start",
    )
    of_task = [row for row in found if row["key"] == "collect-1"]
    assert truth
    matches(of_task, truth)
    assert {row["thread"] for row in of_task} == {thread}
    assert {row["worker"] == row["of_attempt"] for row in of_task} == {True}
    first = own[0][0] - NEAR_NS
    matches([row for row in found if row["worker"] is None and row["start"] >= first], own)


def matches(found: list[dict[str, Any]], truth: list[Seen]) -> None:
    """Check that rows are these collections, in their order."""
    assert [row["generation"] for row in found] == [generation for *_, generation in truth]
    for row, (start, stop, _) in zip(found, truth, strict=True):
        assert abs(row["start"] - start) < NEAR_NS
        assert abs(row["stop"] - stop) < NEAR_NS


def test_a_process_with_several_servers_counts_once_and_can_be_switched_off(
    tmp_path: Path,
) -> None:
    """Scheduler, workers and client of one process have one row; without the setting, none."""
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        with dask_strata.record(tmp_path / "on", client=client) as run:
            truth, _ = client.submit(collect, key="collect-1").result()
        with (
            dask.config.set({"dask_strata.interruptions": False}),
            dask_strata.record(tmp_path / "off", client=client) as without,
        ):
            client.submit(collect, key="collect-2").result()
    query = "select epoch_ns(start) as start, epoch_ns(stop) as stop, generation from gc_pauses"
    matches(rows(run, f"{query} where key = 'collect-1' order by start"), truth)
    servers = run.rows(
        "select worker, count(*) as n from _gc_pauses where attempt is not null group by worker"
    )
    assert [row["n"] for row in servers] == [len(truth)] * 3  # the scheduler and both workers
    assert rows(without, "from gc_pauses") == []
    assert rows(without, "from gil_contention") == []
    assert gc_pauses._on_collection not in gc.callbacks
