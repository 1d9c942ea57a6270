"""`flush` writes all rows before it returns; slow work of the recorder does not delay it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.config import read_settings
from dask_strata.flushing import recorders
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sources.graph import MAX_TASKS
from dask_strata.store.manifest import Manifest, new_run_id
from dask_strata.store.segments.frames import Encoder
from dask_strata.store.sinks import RelaySink
from tests.conftest import rows, wait_until

pytestmark = pytest.mark.timeout(300)

#: A flush interval that no test reaches.
NEVER = "1h"

FRAME = Encoder("worker-0a1b2c3d", {}).header()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker with one thread."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Make an engine with its own run; the test starts it."""
    made: list[Engine] = []

    def make(**settings: Any) -> Engine:
        run, folder = new_run_id(), tmp_path / f"run-{len(made)}"
        Manifest(run, "run", 0, "0").write(folder)
        made.append(Engine("client", run, folder, read_settings(settings)))
        return made[-1]

    yield make
    for one in made:
        one.finish("done")


def keys(run: Run, query: str) -> set[str]:
    run.refresh()
    return {row["key"] for row in rows(run, query)}


def test_flushed_rows_survive_the_worker(client: Client, runs: Path, tmp_path: Path) -> None:
    """If a worker is killed after `flush`, its record contains all events up to that task."""
    sign = tmp_path / "flushed"

    def flush_and_die() -> str:
        if sign.exists():
            return "again"
        done = dask_strata.flush(60)
        sign.write_text(f"{os.getpid()} {done}")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process survived SIGKILL")

    before = [f"before-{i}" for i in range(20)]
    with dask_strata.record(runs, client=client, flush_interval=NEVER) as run:
        assert client.gather(client.map(abs, range(20), key=before)) == list(range(20))
        assert client.submit(flush_and_die, key="last-words").result(timeout=120) == "again"
    pid, done = sign.read_text().split()
    assert done == "True"
    [dead] = rows(run, f"select process from processes where role = 'worker' and pid = {pid}")
    of_dead = f"process = '{dead['process']}'"
    assert keys(run, f"from worker_transitions where {of_dead} and finish_state = 'memory'") == {
        *before
    }
    assert keys(run, f"from executions where {of_dead}") == {*before}
    assert "last-words" in keys(
        run, f"from worker_transitions where {of_dead} and finish_state = 'executing'"
    )
    assert {f.process for f in run.check().incomplete} == {dead["process"]}


def test_a_client_flushes_the_rows_of_its_process(client: Client, runs: Path) -> None:
    """Submission and transitions are not written before `flush`, and are when it returns."""
    query = "select first_key as key from client_submissions"
    finished = "from scheduler_transitions where finish_state = 'memory'"
    with dask_strata.record(runs, client=client, flush_interval=NEVER) as run:
        assert client.submit(abs, -1, key="seen").result() == 1
        assert (keys(run, query), keys(run, finished)) == (set(), set())
        assert dask_strata.flush(60)
        assert (keys(run, query), keys(run, finished)) == ({"seen"}, {"seen"})


def test_without_a_recording_flush_returns_true(client: Client) -> None:
    """It returns True at once: in the client, in a task and on an event loop."""
    assert dask_strata.flush(60)
    assert client.submit(dask_strata.flush, pure=False).result()
    assert client.run_on_scheduler(dask_strata.flush)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5s", None, True])
def test_an_invalid_timeout_is_refused(timeout: Any) -> None:
    """A timeout that is negative or not a number raises an error, also without a recording."""
    with pytest.raises((TypeError, ValueError), match="a number of seconds"):
        dask_strata.flush(timeout)


def test_on_an_event_loop_it_does_not_wait(client: Client, runs: Path) -> None:
    """On an event loop `flush` only triggers a flush, so a blocked one does not block the loop."""

    async def in_a_thread() -> bool:
        return await asyncio.to_thread(dask_strata.flush, 60)

    with dask_strata.record(runs, client=client, flush_interval=NEVER) as run:
        [scheduler] = [
            e for e in recorders() if (e.role, e.run_id) == ("scheduler", run.manifest.run_id)
        ]
        assert client.submit(abs, -1, key="seen").result() == 1
        with scheduler._flush_lock:
            assert client.run_on_scheduler(dask_strata.flush) is False
        query = "from scheduler_transitions where finish_state = 'memory'"
        wait_until(lambda: keys(run, query) == {"seen"}, what="the triggered flush")
        assert set(client.run(dask_strata.flush).values()) == {False}
        assert client.submit(abs, -2, key="more").result() == 2
        assert client.run_on_scheduler(in_a_thread) is True
        assert keys(run, query) == {"seen", "more"}


def test_small_graphs_share_a_flush(
    client: Client, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One flush describes many submissions of one task, not a fixed number of them."""
    # On a busy machine the time of a call may end earlier than the tasks.
    monkeypatch.setattr("dask_strata.recorder.sources.graph._SECONDS", 60)
    with dask_strata.record(runs, client=client, flush_interval=NEVER) as run:
        [scheduler] = [
            e for e in recorders() if (e.role, e.run_id) == ("scheduler", run.manifest.run_id)
        ]
        futures = [client.submit(abs, -i) for i in range(30)]
        client.gather(futures)
        scheduler.flush()
        assert scheduler._writer.handed_over(60)
        assert keys(run, "select key from graph_tasks") == {f.key for f in futures}


@pytest.mark.long
def test_a_large_graph_does_not_delay_a_flush(
    cluster: LocalCluster, client: Client, runs: Path
) -> None:
    """One flush writes all transitions and a part of the graph; later ones write the rest."""
    n = 2 * MAX_TASKS + 5_000
    tasks, nowhere = "select key from graph_tasks", {"a place that is nowhere": 1}

    def submit(prefix: str) -> list[Any]:
        known = len(cluster.scheduler.unrunnable)
        names = [f"{prefix}-{i}" for i in range(n)]
        made = client.map(abs, range(n), key=names, resources=nowhere)
        wait_until(lambda: len(cluster.scheduler.unrunnable) == known + n, what="all tasks")
        client.run_on_scheduler(lambda: None)  # wait for the next step of the event loop
        return made

    with dask_strata.record(runs, client=client, flush_interval=NEVER) as run:
        [scheduler] = [
            e for e in recorders() if (e.role, e.run_id) == ("scheduler", run.manifest.run_id)
        ]
        first = submit("first")
        scheduler.flush()
        assert scheduler._writer.handed_over(60)
        transitioned = keys(run, "select distinct key from scheduler_transitions")
        assert transitioned == {f.key for f in first}
        assert 0 < len(keys(run, tasks)) <= MAX_TASKS
        assert dask_strata.flush(120)
        assert keys(run, tasks) == transitioned
        second = submit("second")
    wait_until(lambda: open_run(run.path).state == "complete", what="the end")
    assert keys(run, tasks) == transitioned | {f.key for f in second}


class Facts(Source):
    """A source of one action that gathers facts."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def facts(self) -> list[Callable[[], object]]:
        return [self._action]


def test_slow_facts_do_not_delay_a_flush(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are written while facts are gathered; facts that miss the end are a loss."""
    monkeypatch.setattr("dask_strata.recorder.pipeline.engine._LAST_WRITE_SECONDS", 60)
    go, one = threading.Event(), engine(flush_interval="10ms")
    one.start(Facts(lambda: one.add("job", name="slow", value=str(go.wait(60)))), address="c")
    one.add("script", name="meanwhile", value="")
    run = open_run(one.folder)

    def names(table: str) -> list[str]:
        run.refresh()
        return run[table].to_arrow()["name"].to_pylist()

    wait_until(lambda: "meanwhile" in names("script"), what="a row")
    assert names("job") == []
    go.set()
    one.finish("done")
    assert names("job") == ["slow"]
    assert len(run["losses"]) == 0

    monkeypatch.setattr("dask_strata.recorder.pipeline.engine._LAST_FACTS_SECONDS", 0.1)
    stuck, go = engine(), threading.Event()
    stuck.start(Facts(lambda: go.wait(120)), address="c")
    stuck.finish("done")
    go.set()
    [loss] = open_run(stuck.folder)["losses"].to_arrow().to_pylist()
    assert loss["what"] == "facts"


def test_fsync_is_called_on_the_writer_thread(engine: Callable[..., Engine]) -> None:
    """fsync is never called by default; with an interval it is called repeatedly and at the end."""
    calls: list[str] = []

    def watch(_: Any, event: str, argument: Any) -> None:
        if event == "c_call" and argument is os.fsync:
            calls.append(threading.current_thread().name)

    def start(**settings: Any) -> Engine:
        made = engine(**settings)
        threading.setprofile(watch)
        try:
            made.start(address="c")
        finally:
            threading.setprofile(None)
        return made

    without = start(flush_interval="10ms")
    assert without.flush_all(60)
    without.finish("done")
    assert calls == []
    often = start(flush_interval="10ms", sample_interval="10ms", fsync_interval="10ms")
    wait_until(lambda: len(calls) > 3, what="calls of fsync")
    often.finish("done")
    seldom = start(fsync_interval=NEVER)
    assert seldom.flush_all(60)
    before = len(calls)
    seldom.finish("done")
    assert len(calls) > before
    assert {name.rpartition("-")[2] for name in calls} == {"writer"}
    assert all(len(open_run(one.folder)["losses"]) == 0 for one in (often, seldom))


def test_fsync_that_fails_is_counted(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    """If fsync fails (here on a pipe), it is logged and recorded as a loss; nothing is raised."""
    one = engine(flush_interval=NEVER, fsync_interval="10ms")
    one.start(address="c")
    assert one.flush_all(60)
    reader, writer = os.pipe()
    kept = os.dup(one.sink._fd)
    os.dup2(writer, one.sink._fd)
    try:
        one.add("script", name="into the pipe", value="")
        assert one.flush_all(60)
        wait_until(lambda: one._writer.failed_syncs, what="a failure")
    finally:
        os.dup2(kept, one.sink._fd)
        for fd in (reader, writer, kept):
            os.close(fd)
    one.finish("done")
    [loss] = rows(open_run(one.folder), "from losses where what = 'fsync'")
    assert loss["count"] >= 1
    assert "Invalid argument" in loss["reason"]
    assert [r.getMessage() for r in caplog.records if "cannot sync them to disk" in r.getMessage()]


def test_relayed_records_are_synced_too(tmp_path: Path) -> None:
    """The files of relayed processes are synced; a missing file raises an error once."""
    sink = RelaySink(tmp_path, ".seg")
    sink.write(RelaySink.label("worker-0a1b2c3d", FRAME), 0)
    sink.sync()
    sink.write(RelaySink.label("worker-0a1b2c3d", FRAME), 0)
    (tmp_path / "worker-0a1b2c3d.seg").unlink()
    with pytest.raises(FileNotFoundError):
        sink.sync()
    sink.sync()
