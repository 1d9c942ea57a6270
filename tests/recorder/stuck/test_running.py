"""Tasks that hang on a real cluster are named with the line at which they hang."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Lock

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.analysis.story import story
from dask_strata.recorder.stuck.stacks import stack_text
from dask_strata.report.story import plain_story
from dask_strata.report.summary import summary_json
from tests.conftest import assert_whole, wait_until
from tests.recorder.stuck import tasks
from tests.recorder.stuck.conftest import INTERVAL, found, source_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick")]


def note_calls(dask_worker: Any) -> None:
    """Note the time of each call-stack request to a worker."""
    answer = dask_worker.handlers["call_stack"]
    dask_worker.noted = []

    def noting(*arguments: Any, **keywords: Any) -> Any:
        dask_worker.noted.append(time.time())
        return answer(*arguments, **keywords)

    dask_worker.handlers["call_stack"] = noting


def calls_noted(dask_worker: Any) -> list[float]:
    """Return the times of the requests so far, and forget them."""
    noted, dask_worker.noted = dask_worker.noted, []
    return noted


def json_of(run: Run) -> dict[str, Any]:
    """Return what `dask-strata show --json` prints."""
    opened = open_run(run.path)
    summary = summary_of(opened)
    found: dict[str, Any] = json.loads(summary_json(summary, stuck_of(opened, summary.outcome)))
    return found


def test_a_task_that_hangs_is_named_with_its_line(
    shared: Client, runs: Path, tmp_path: Path, strata: Callable[..., Any]
) -> None:
    """One of many tasks of a prefix hangs: its stack, its times and the others' are the truth."""
    released = tmp_path / "released"
    shared.run(note_calls)
    with dask_strata.record(runs, client=shared) as run:
        measured = shared.gather(shared.map(tasks.step, [0.05, 0.1, 0.15] * 10, pure=False))
        assert not any(shared.run(calls_noted).values())  # nothing was stuck
        stuck = shared.submit(tasks.step, 0, str(released))
        row = found(shared, lambda row: row["key"] == stuck.key)
        requests: list[float] = []

        def several() -> bool:
            requests.extend(*shared.run(calls_noted, workers=[row["worker"]]).values())
            return len(requests) > 4

        wait_until(several)
        shown = strata("show", run.path, check=True).stdout
        facts = json_of(run)["stuck"]
        released.touch()
        assert stuck.result() >= 0
        begun = float(released.with_suffix(".begun").read_text(encoding="utf-8"))
        wait_until(lambda: not source_of(shared).present)
    # Dask's estimate of the duration has the age of a heartbeat.
    assert row["kind"] == "long-running"
    assert abs(row["since"] / 1e9 - begun) < 1
    assert row["seconds"] == pytest.approx((row["time"] - row["since"]) / 1e9)
    assert row["typical_seconds"] == pytest.approx(statistics.median(measured), rel=0.2)
    file, hangs = tasks.__file__, tasks.line_of(tasks.hang)
    frames = row["stack"].splitlines()
    assert frames[0].startswith(f"step ({file}:")
    assert frames[-1] == f"hang ({file}:{hangs})"
    # One request to a worker in each interval at most.
    pauses = [after - before for before, after in pairwise(requests)]
    assert all(pause > 0.8 * INTERVAL for pause in pauses), pauses
    # The views show the same.
    assert facts["present"] is True
    assert f"hang (tasks.py:{hangs}) ← step (tasks.py:" in facts["findings"][0]["text"]
    assert "Stuck now" in shown
    assert f"{stuck.key} has run for" in shown
    recorded = open_run(run.path)
    assert_whole(recorded)
    assert {r["key"] for r in recorded.rows("select * from stuck")} == {stuck.key}
    told = plain_story(story(recorded.task(stuck.key)))
    assert "found stuck: ran for" in told
    assert f"hang ({file}:{hangs})" in told
    # The run finished: nothing is stuck any more.
    done = json_of(run)
    assert done["stuck"] is None
    assert done["outcome"] == "finished"


def test_two_tasks_wait_for_a_lock(shared: Client, runs: Path) -> None:
    """Both tasks that wait for a lock are named with the line that acquires it."""
    lock = Lock("never-released")
    lock.acquire()
    with dask_strata.record(runs, client=shared):
        futures = shared.map(tasks.hold, ["never-released"] * 2, pure=False, key="hold")
        rows = [found(shared, lambda row, f=f: str(f.key) in row["key"]) for f in futures]
        lock.release()
        assert shared.gather(futures) == ["never-released"] * 2
    for row in rows:
        frames = row["stack"].splitlines()
        assert frames[0] == f"hold ({tasks.__file__}:{tasks.line_of(tasks.hold)})"
        assert any(frame.startswith("acquire (") for frame in frames)
        assert row["typical_seconds"] is None


def test_a_healthy_run_has_nothing_stuck(shared: Client, runs: Path) -> None:
    """Tasks of many different durations raise no alarm, and no stack is requested."""
    shared.run(note_calls)
    logarithms = statistics.NormalDist(math.log(0.3), 0.8)
    seconds = [math.exp(logarithms.inv_cdf((i + 0.5) / 60)) for i in range(60)]
    assert max(seconds) > 6 * statistics.median(seconds)
    random.Random(7).shuffle(seconds)
    with dask_strata.record(runs, client=shared) as run:
        shared.gather(shared.map(tasks.step, seconds, pure=False))
        checked = source_of(shared).checked
    assert checked is not None
    assert open_run(run.path).rows("select * from stuck") == []
    assert not any(shared.run(calls_noted).values())


def test_exceptions_of_tasks_are_as_before(shared: Client, runs: Path) -> None:
    """While tasks are stuck, other tasks fail with their own exception and traceback."""
    with dask_strata.record(runs, client=shared):
        lock = Lock("other")
        lock.acquire()
        stuck = shared.submit(tasks.hold, "other", key="waits")  # a prefix without history
        found(shared, lambda row: row["key"] == stuck.key)
        failing = shared.submit(tasks.fail, "the user's own")
        with pytest.raises(ValueError, match="the user's own"):
            failing.result()
        assert "dask_strata" not in "".join(failing.traceback().tb_frame.f_code.co_filename)
        lock.release()
        assert stuck.result() == "other"


def test_left_out_code_is_neither_requested_nor_recorded(
    shared: Client, runs: Path, tmp_path: Path
) -> None:
    """With `leave-out: code, paths` a stuck task has a row without a stack, without a request."""
    shared.run(note_calls)
    released = tmp_path / "released"
    with dask_strata.record(runs, client=shared, leave_out=["code", "paths"]) as run:
        stuck = shared.submit(tasks.step, 0, str(released), key="left-out")
        found(shared, lambda row: row["key"] == "left-out")
        requests = shared.run(calls_noted)
        released.touch()
        stuck.result()
    assert not any(requests.values())
    rows = open_run(run.path).rows("select * from stuck")
    assert rows
    assert {row["stack"] for row in rows} == {"(left out)"}


def test_checks_end_with_the_recording(shared: Client, runs: Path, tmp_path: Path) -> None:
    """After the end no check runs, although a task is still stuck."""
    released = tmp_path / "released"
    with dask_strata.record(runs, client=shared):
        stuck = shared.submit(tasks.step, 0, str(released), key="outlives")
        found(shared, lambda row: row["key"] == "outlives")
    shared.run(note_calls)
    time.sleep(3 * INTERVAL)
    assert not any(shared.run(calls_noted).values())
    assert "_guarded_check" not in shared.run_on_scheduler(_running_coroutines)
    released.touch()
    stuck.result()


async def _running_coroutines() -> list[str]:
    import asyncio

    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    return [getattr(coroutine, "__name__", "") for coroutine in coroutines]


def test_a_stack_has_the_frames_of_the_task_alone() -> None:
    """The frames of Dask's own text are those of the interpreter, without those before the task."""
    import sys

    from distributed.profile import call_stack

    frame = sys._getframe()
    line = frame.f_lineno + 1
    text = stack_text(call_stack(frame))
    assert text is not None
    assert text.splitlines()[-1] == f"{frame.f_code.co_name} ({__file__}:{line})"
