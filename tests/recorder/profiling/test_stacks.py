"""Dask's statistical profile: its samples, with the functions that Dask itself does not count."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, profile

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.stacks import StackFilter, select_functions, stacks
from dask_strata.config import read_settings
from dask_strata.errors import StrataError
from dask_strata.recorder.profiling import stacks as sources
from dask_strata.recorder.profiling.innermost import count_innermost, stop_counting
from dask_strata.recorder.profiling.stacks import Frames, LoopStacks, innermost_counts
from dask_strata.store.segments.frames import Batch
from dask_strata.store.segments.replacing import Replacing
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.profiling.spinning import SHARE, hold, work


@contextmanager
def frame_in(*calls: Callable[..., Any]) -> Iterator[FrameType]:
    """Give the frame of a thread that is in these functions, which call each other."""
    there, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=calls[0], args=(calls[1:], there, leave))
    thread.start()
    try:
        assert there.wait(5)
        frame: FrameType | None = sys._current_frames()[thread.ident or 0]
        while frame is not None and frame.f_code.co_name != calls[-1].__name__:
            frame = frame.f_back  # leave out Python's own `wait`
        assert frame is not None
        yield frame
    finally:
        leave.set()
        thread.join()


def outer(calls: Any, there: threading.Event, leave: threading.Event) -> None:
    """Call the next function."""
    calls[0](calls[1:], there, leave)


def first(calls: Any, there: threading.Event, leave: threading.Event) -> None:
    """Call the next function, or wait here."""
    if calls:
        calls[0](calls[1:], there, leave)
    else:
        there.set()
        leave.wait()


def second(calls: Any, there: threading.Event, leave: threading.Event) -> None:
    """Call the next function, or wait here."""
    if calls:
        calls[0](calls[1:], there, leave)
    else:
        there.set()
        leave.wait()


def counts(tree: dict[str, Any]) -> Counter[tuple[str, ...]]:
    """Return the samples of a tree by path, without Python's frames of threads."""
    frames = Frames()
    found = list(innermost_counts(tree, frames))
    table = {row["frame"]: row for row in frames.take()}

    def path(number: int | None) -> tuple[str, ...]:
        if number is None:
            return ()
        of_parent = path(table[number]["parent"])
        name = table[number]["function"]
        return (
            of_parent if name in {"_bootstrap", "_bootstrap_inner", "run"} else (*of_parent, name)
        )

    total: Counter[tuple[str, ...]] = Counter()
    for number, n in found:
        total[path(number)] += n
    return total


@contextmanager
def counting() -> Iterator[None]:
    """Count innermost frames in the block."""
    assert count_innermost()
    try:
        yield
    finally:
        stop_counting()


#: The argument with which Dask samples the threads of tasks, and an event loop.
OF_TASKS, OF_LOOPS = True, None


def planted(child: Any) -> dict[str, Any]:
    """Return a tree of Dask of 2 samples in first, 5 in second and 3 in first called by second."""
    tree = profile.create()
    for calls, n in (((outer, first), 2), ((outer, second), 5), ((outer, second, first), 3)):
        with frame_in(*calls) as frame:
            for _ in range(n):
                profile.process(frame, child, tree)
    return tree


EXPECTED = {("outer", "first"): 2, ("outer", "second"): 5, ("outer", "second", "first"): 3}


def test_innermost_functions_of_tasks_are_counted() -> None:
    """Dask's own tree lacks them: siblings that call nothing cannot be told apart in it."""
    with counting():
        tree = planted(OF_TASKS)
    assert counts(tree) == EXPECTED
    assert sum(counts(tree).values()) == tree["count"] == 10
    # Dask's own functions read the tree as before, and lose the additional counts.
    assert counts(profile.merge(tree, profile.create())) == counts(planted(OF_TASKS))


def test_samples_without_a_known_innermost_function_count_for_its_caller() -> None:
    """Those that Dask took before the recorder counted."""
    assert counts(planted(OF_TASKS)) == {("outer",): 7, ("outer", "second"): 3}


def test_trees_of_event_loops_have_their_own_counts() -> None:
    """Dask counts the innermost frames of these, and the recorder does not count them again."""
    with counting():
        tree = planted(OF_LOOPS)
    assert counts(tree) == EXPECTED


def test_the_function_of_dask_is_restored_after_the_last_use() -> None:
    """Two recordings, or two workers, of one process share the replacement."""
    original = profile.process
    with counting():
        with counting():
            assert profile.process is not original
        assert profile.process is not original
        assert profile.process.__wrapped__ is original
    assert profile.process is original


def test_frames_beyond_the_bound_count_for_their_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sample is missing, and the number of such visits is known."""
    with counting():
        tree = planted(OF_TASKS)
    monkeypatch.setattr(sources, "MAX_FRAMES", 5)
    frames = Frames()
    assert sum(n for _, n in innermost_counts(tree, frames)) == 10
    assert len(frames.take()) == 5
    assert frames.beyond > 0


def test_a_frame_found_during_a_flush_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are taken on one thread while another describes a new frame."""
    taken: list[dict[str, Any]] = []
    frames, function = Frames(), sources._function

    def described_during_a_flush(node: dict[str, Any]) -> dict[str, Any]:
        taken.extend(frames.take())
        return function(node)

    monkeypatch.setattr(sources, "_function", described_during_a_flush)
    number = frames.number(None, _node("/a.py"))
    assert [row["frame"] for row in [*taken, *frames.take()]] == [number]


def test_the_last_samples_of_a_loop_are_counted_once() -> None:
    """Samples that were taken at the end of a recording become rows in its last step."""
    tree = {**_node("/a.py"), "count": 1, "children": {}}
    root = {"count": 1, "children": {"load": tree}, "identifier": "root", "description": {}}
    loop: Any = type("Loop", (), {})()
    loop.profile = deque([(time.time() + 1, root)])
    server, engine = SimpleNamespace(io_loop=loop), SimpleNamespace(run_id="r", process="p")
    source = LoopStacks(server, engine, Frames())  # type: ignore[arg-type]
    source.remove()
    source.remove()
    assert list(source.rows()) == []  # nothing is computed on the event loop
    source.finish()
    source.finish()
    assert [batch.n for batch in source.rows()] == [1, 1]
    assert not sources._recorded[loop]


def test_files_are_left_out_and_secrets_redacted() -> None:
    """Paths of functions are paths, and a password in one is none of our business."""
    node = {"identifier": "load;s3://me:hunter2@host/a.py;7", "description": {}}
    [row] = _rows_of(node)
    assert "hunter2" not in row["module"]
    replacing = Replacing(read_settings({"leave-out": "paths", "leave-out-secret": "s"}))
    batch = replacing.batch(Batch.of_rows("stack_frames", _rows_of(_node("/home/ann/a.py"))))
    [module] = batch.columns["module"]  # type: ignore[misc]
    assert str(module).startswith("path-")


def test_compiled_functions_have_no_line() -> None:
    """Dask names them by module and line, and describes their file as built in."""
    description = {"name": "f.g", "filename": "<built-in>", "line_number": 3}
    [row] = _rows_of({"identifier": "m.f.g:3", "description": description})
    assert (row["function"], row["module"], row["line"]) == ("f.g", "<built-in>", None)


def _node(file: str) -> dict[str, Any]:
    return {"identifier": f"load;{file};7", "description": {}}


def _rows_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    frames = Frames()
    frames.number(None, node)
    return frames.take()


@pytest.fixture(scope="module")
def small_cluster() -> Iterator[Client]:
    """One worker process with one thread."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def dask_counts(client: Client) -> dict[str, int]:
    """Return Dask's own numbers of samples by prefix, over all that it remembers."""
    found = client.run(_dask_counts)
    return next(iter(found.values()))  # type: ignore[no-any-return]


def _dask_counts(dask_worker: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for _, trees in [*dask_worker.profile_keys_history, (0, dask_worker.profile_keys)]:
        for prefix, tree in trees.items():
            total[prefix] += tree["count"]
    return dict(total)


def test_a_recorded_profile_is_that_of_dask(small_cluster: Client, tmp_path: Path) -> None:
    """Each sample during the recording is on record once, and none from before or after it.

    The task measures how long it is in two functions; shares of samples agree with that.
    """
    client = small_cluster
    client.submit(work, 0.2, pure=False).result()  # before the recording
    before = dask_counts(client)
    with dask_strata.record(tmp_path, client=client) as recording:
        measured = client.submit(work, 1.6, pure=False).result()
    after = dask_counts(client)
    client.submit(work, 0.2, pure=False).result()  # after it
    run = open_run(recording.path)
    assert_whole(run)
    [on_record] = rows(run, "select sum(n_samples)::bigint as n from stacks where kind = 'task'")
    expected = after["work"] - before["work"]
    assert on_record["n"] == expected
    assert expected > 40, "Dask takes up to 100 samples in a second"
    found = {
        row["name"]: row
        for row in select_functions(run, StackFilter(prefix="work")).rows.to_pylist()
    }
    both = found["short"]["own_samples"] + found["long"]["own_samples"]
    truth = measured["long"] / sum(measured.values())
    assert truth == pytest.approx(SHARE, abs=0.2), "other programs of the machine interrupt it"
    assert found["long"]["own_samples"] / both == pytest.approx(truth, abs=0.1)
    assert both / expected > 0.95
    assert found["work"]["total_samples"] == pytest.approx(expected, abs=3)


def test_dasks_objects_are_restored(small_cluster: Client, tmp_path: Path) -> None:
    """The worker's history is a plain deque of Dask's bound again, and its function its own."""
    with dask_strata.record(tmp_path, client=small_cluster):
        [during] = small_cluster.run(_objects).values()
    [after] = small_cluster.run(_objects).values()
    assert during[0] == "FollowedLog"
    assert during[2]
    assert after == ("deque", dask.config.get("distributed.admin.low-level-log-length"), False)


def _objects(dask_worker: Any) -> tuple[str, int | None, bool]:
    from distributed import profile

    history = dask_worker.profile_keys_history
    return type(history).__name__, history.maxlen, hasattr(profile.process, "__wrapped__")


def test_event_loops_that_dask_samples_are_recorded(small_cluster: Client, tmp_path: Path) -> None:
    """Dask takes a sample in each cycle, which stands for the time since the one before.

    It has no such profile under Python 3.11; here it is started as Dask does it in other versions.
    """
    client = small_cluster
    client.run(_watch)
    with dask_strata.record(tmp_path, client=client) as recording:
        client.run(hold, 1.5)
    client.run(_stop_watching)
    run = open_run(recording.path)
    found = stacks(run, StackFilter(event_loops=True))
    held = sum(s.seconds for s in found if any(f.name == "hold" for f in s.frames))
    assert held == pytest.approx(1.5, abs=0.5)
    [kinds] = rows(run, "select count(distinct process) as n from stacks where kind = 'event loop'")
    assert kinds["n"] == 1
    with pytest.raises(StrataError, match="No statistical profile"):
        stacks(run)


def _watch(dask_worker: Any) -> None:
    from distributed import profile

    dask_worker.strata_stop = []
    dask_worker.io_loop.profile = profile.watch(
        omit=("profile.py", "selectors.py"),
        interval="10ms",
        cycle="100ms",
        stop=lambda: bool(dask_worker.strata_stop),
    )


def _stop_watching(dask_worker: Any) -> None:
    dask_worker.strata_stop.append(True)
    dask_worker.io_loop.profile = type(dask_worker.io_loop.profile)()


@pytest.mark.long
def test_a_killed_worker_loses_its_last_cycles_only(tmp_path: Path) -> None:
    """Its earlier samples are on record; those of at most some 2 s before its end are missing."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as recording,
    ):
        future = client.submit(work, 30)
        sampled = wait_until(lambda: _sampled(client))
        [pid] = client.run(os.getpid).values()
        ended = time.time()
        os.kill(pid, signal.SIGKILL)
        future.cancel()
    run = open_run(recording.path)
    [found] = rows(run, "select sum(n_samples)::bigint as n, epoch(max(stop)) as stop from stacks")
    assert found["n"] >= sampled > 0
    assert found["stop"] > ended - LAST_SECONDS


#: A cycle of 1 s, half a second between two readings, and what a busy machine adds.
LAST_SECONDS = 2 + 3


def _sampled(client: Client) -> int:
    """Return Dask's samples in all cycles but the last three, once there are more cycles."""
    [counts_of_cycles] = client.run(_cycles).values()
    return sum(counts_of_cycles[:-3])


def _cycles(dask_worker: Any) -> list[int]:
    history = dask_worker.profile_keys_history
    return [sum(tree["count"] for tree in trees.values()) for _, trees in history if trees]


def test_a_profile_that_is_disabled_is_no_loss(tmp_path: Path) -> None:
    """Then Dask takes no samples; the record is whole, and the command states the reason."""
    disabled = {"distributed.worker.profile.enabled": False}
    with (
        dask.config.set(disabled),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(tmp_path, client=client) as recording,
    ):
        client.submit(work, 0.1).result()
    run = open_run(recording.path)
    assert_whole(run)
    assert not rows(run, "select * from stacks")
    with pytest.raises(StrataError, match="No statistical profile") as raised:
        select_functions(run, StackFilter())
    assert "profile.enabled" in str(raised.value)
