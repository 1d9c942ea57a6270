"""Measures of attempts with each outcome: retried, erred, cancelled, killed; coroutines, actors."""

# Tasks open files with open() and os.open(), as users do.
# ruff: noqa: ASYNC230, PTH110, PTH123

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, Reschedule

import dask_strata
from dask_strata import Run
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.sources.measured_tasks import (
    MEASURES,
    attempt,
    attempts,
    copy,
    forgotten,
    needs_accounting,
    nothing,
    opens,
    write_and_fail,
    write_and_wait,
    write_pieces,
)

pytestmark = needs_accounting


def once_more(folder: str, error: type[Exception]) -> int:
    """Write 100 bytes and fail at the first call; write 200 bytes and return at the second."""
    marker = Path(folder) / "was here"
    again = marker.exists()
    write_pieces(f"{folder}/data", 20 if again else 10)
    if not again:
        marker.touch()
        raise error("the first time")
    return 1


@pytest.mark.parametrize("error", [ValueError, Reschedule])
def test_each_attempt_has_its_own_measures(
    client: Client, runs: Path, tmp_path: Path, error: type[Exception]
) -> None:
    """A task that is retried or rescheduled has two attempts, each with its own measures."""
    key = f"twice-{error.__name__}"
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(once_more, str(tmp_path), error, key=key, retries=1)
        assert task.result() == 1
    first, second = attempts(run, key)
    assert first["outcome"] == ("rescheduled" if error is Reschedule else "retried")
    assert second["outcome"] == "memory"
    wanted = error is Reschedule
    assert first["exception"] == (None if wanted else repr(error("the first time")))
    assert second["exception"] is None
    assert (first["write_bytes"], first["write_calls"]) == (100, 10)
    assert (second["write_bytes"], second["write_calls"]) == (200, 10)
    assert first["run_id"] != second["run_id"]
    found = rows(run, "select outcome, exception from executions order by execution")
    assert [(r["outcome"], r["exception"]) for r in found] == [
        ("rescheduled" if wanted else "erred", repr(error("the first time"))),
        ("finished", None),
    ]
    assert_whole(run)


def story_of(run: Run, key: str) -> list[str]:
    """Return the events of a task's story on the worker's thread, without the times."""
    events = [event for event in run.task(key).events if event.layer == "thread"]
    return [f"{e.what}: " + re.sub(r"(?<=ran |CPU )[\d.]+ m?s", "_", e.detail) for e in events]


async def pause(path: str) -> str:
    """Read a file on the event loop."""
    with open(path, "rb") as file:
        file.read()
    await asyncio.sleep(0.01)
    return "done"


def test_a_story_has_the_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """Each execution is an event with time, CPU time, bytes, calls and files, if not zero."""
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1000)
    # The first copy may import modules, and the first traceback reads the source file.
    client.submit(copy, str(path), 600).result()
    client.submit(write_and_fail, str(tmp_path / "other")).exception()
    with dask_strata.record(runs, client=client) as run:
        client.submit(copy, str(path), 600, key="copies").result()
        client.submit(nothing, key="rests").result()
        client.submit(pause, str(path), key="pauses").result()
        assert client.submit(write_and_fail, str(path), key="fails").exception()
    (copied,) = story_of(run, "copies")
    assert copied == (
        "execution finished: ran _, CPU _, read 1000 B in 3 calls, "
        "wrote 1000 B in 2 calls, opened 2 files"
    )
    assert story_of(run, "rests") == ["execution finished: ran _, CPU _"]
    assert story_of(run, "pauses") == ["coroutine finished: ran _, opened 1 file"]
    (failed,) = story_of(run, "fails")
    assert failed.startswith(
        "execution erred: ran _, CPU _, wrote 770 B in 10 calls, opened 1 file"
    )
    assert "on purpose" in failed


def test_failed_attempts_have_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """A task that fails has measures like any other."""
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(write_and_fail, str(tmp_path / "new"), key="fails")
        assert isinstance(task.exception(), ZeroDivisionError)
    found = attempt(run, "fails")
    assert (found["outcome"], found["write_bytes"]) == ("erred", 770)
    assert "on purpose" in found["exception"]
    assert opens(run, "fails") == {(str(tmp_path / "new"), "write", 1)}


def test_a_cancelled_attempt_has_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """A cancelled task runs to its end, and its attempt has the measures."""
    with dask_strata.record(runs, client=client) as run:
        task = client.submit(write_and_wait, str(tmp_path), key="cancelled")
        wait_until((tmp_path / "started").exists, what="the task to start")
        try:
            task.cancel()
            forgotten(client, "cancelled")
        finally:
            (tmp_path / "go").touch()
        client.submit(nothing, key="next").result()
    (ran,) = rows(run, "select * from executions where key = 'cancelled'")
    assert (ran["outcome"], ran["write_bytes"]) == ("finished", 770)
    found = attempt(run, "cancelled")
    assert (found["outcome"], found["write_bytes"]) == ("released", 770)
    seen = rows(run, "select uri, attempt from task_inputs where kind = 'seen'")
    assert {r["uri"] for r in seen} == {str(tmp_path / n) for n in ("written", "started")}
    assert {r["attempt"] for r in seen} == {found["attempt"]}


def die(folder: str) -> None:
    """Write 770 bytes; kill the worker at the first call."""
    write_pieces(f"{folder}/written", 77)
    if not os.path.exists(f"{folder}/died"):
        os.close(os.open(f"{folder}/died", os.O_WRONLY | os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_a_killed_attempt_has_no_measures(runs: Path, tmp_path: Path) -> None:
    """Measures are null, never 0, if the worker was killed; those of the next attempt are known."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        client.submit(die, str(tmp_path), key="dies").result()
    first, second = attempts(run, "dies")
    assert (first["outcome"], second["outcome"]) == ("lost", "memory")
    unknown = ("kind", "shared", "n_opened", "elsewhere", *MEASURES)
    assert [first[name] for name in unknown] == [None] * len(unknown)
    assert second["kind"] == "thread"
    assert second["write_bytes"] == 770
    assert run.check().grade == "whole for every task"


async def fail(_: str) -> None:
    """Fail on the event loop."""
    await asyncio.sleep(0)
    raise ValueError("in a coroutine")


def test_coroutines_have_no_measures(client: Client, runs: Path, tmp_path: Path) -> None:
    """CPU time and bytes of a task on the event loop are null, as it shares the thread."""
    path = tmp_path / "data"
    path.write_bytes(b"x")
    with dask_strata.record(runs, client=client) as run:
        assert client.submit(pause, str(path), key="pauses").result() == "done"
        assert client.submit(fail, "x", key="fails").exception()
    for key, outcome in (("pauses", "memory"), ("fails", "erred")):
        (found,) = attempts(run, key)
        assert (found["kind"], found["outcome"]) == ("coroutine", outcome)
        assert [found[name] for name in MEASURES] == [None] * len(MEASURES)
        (ran,) = rows(run, f"select * from executions where key = '{key}'")
        assert ran["start"] < ran["stop"]
    assert opens(run, "pauses") == {(str(path), "read", 1)}


class Writer:
    """An actor that writes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, size: int) -> int:
        """Write ten pieces."""
        return write_pieces(self.path, size)

    def fail(self) -> None:
        """Fail."""
        raise ValueError("in an actor")


def test_calls_of_actors(client: Client, runs: Path, tmp_path: Path) -> None:
    """Each call of an actor's method is an execution, and none is an attempt."""
    path = str(tmp_path / "new")
    with dask_strata.record(runs, client=client) as run:
        made = client.submit(Writer, path, key="writer", actor=True)
        writer = made.result()
        for size in (1, 20, 300):
            assert writer.write(size).result() == 10
        with pytest.raises(ValueError, match="in an actor"):
            writer.fail().result()
    found = rows(run, "select * from executions where kind = 'actor' order by execution")
    assert [r["write_bytes"] for r in found] == [10, 200, 3000, 0]
    assert [r["outcome"] for r in found] == ["finished"] * 3 + ["erred"]
    assert all(r["cpu_seconds"] is not None for r in found)
    assert attempt(run, "writer")["write_bytes"] == 0
    assert len(attempts(run, "writer")) == 1


def test_calls_of_actors_have_the_key_of_the_actor(
    client: Client, runs: Path, tmp_path: Path
) -> None:
    """Calls of two actors with one prefix have the keys of their actors."""
    keys = ["writer-1", "writer-2"]
    with dask_strata.record(runs, client=client) as run:
        made = [client.submit(Writer, str(tmp_path / key), key=key, actor=True) for key in keys]
        for future in made:
            future.result().write(1).result()
    found = rows(run, "select key from executions where kind = 'actor' order by execution")
    assert [r["key"] for r in found] == keys
