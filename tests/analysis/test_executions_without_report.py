"""Executions without a report to the scheduler are compute: running, killed, cancelled, repeated.

The truth is measured by the tasks: they write the time at their start and before their end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster, Reschedule

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.breakdown import PREFIX_KINDS, breakdown
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.summary import summarize
from tests.conftest import wait_until

pytestmark = pytest.mark.long

#: Seconds in which a scheduler notices that a worker died, on a loaded machine.
NOTICED = 1.0


def note(folder: Path, name: str) -> int:
    """Append the time to a file, and return how many times it has."""
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(f"{time.time()}\n")
    return len((folder / name).read_text(encoding="utf-8").split())


def noted(folder: Path, name: str) -> list[float]:
    """Return the times in a file."""
    return [float(line) for line in (folder / name).read_text(encoding="utf-8").split()]


def hold(folder: Path, name: str, until: str) -> None:
    """Note the start, wait for an event, and note the end."""
    note(folder, name)
    Event(f"began-{name}").set()
    assert Event(until).wait(120)
    note(folder, f"{name} ended")


def die(folder: Path) -> None:
    """Compute for 1.2 s, then kill the worker."""
    note(folder, "die")
    time.sleep(1.2)
    note(folder, "died")
    os.kill(os.getpid(), 9)


def twice(folder: Path) -> None:
    """Compute for 0.7 s, and ask for another attempt the first time."""
    n = note(folder, "twice")
    time.sleep(0.7)
    note(folder, "tried")
    if n == 1:
        raise Reschedule


def shown(run: Run) -> dict[str, Any]:
    """Return the summary as `dask-strata show --json` prints it."""
    command = [sys.executable, "-m", "dask_strata", "show", str(run.path), "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A recorded run, what it looked like while two tasks ran, and the folder of the truth."""
    folder = tmp_path_factory.mktemp("attribution")
    facts: dict[str, Any] = {"folder": folder}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        held = [client.submit(hold, folder, n, "go on", key=f"hold-{n}") for n in "ab"]
        for name in "ab":
            assert Event(f"began-{name}").wait(60)
        began = max(noted(folder, "a") + noted(folder, "b"))
        wait_until(lambda: last(open_run(run.path)) > began + 2, what="a record of 2 s more")
        facts["live"] = shown(run)
        look = open_run(run.path)
        facts["live path"] = critical_path(look)
        facts["live workers"] = look.rows("select start from workers")
        facts["snapshot"] = wait_until(
            lambda: (
                (look := dask_strata.live(client))
                and len([t for t in look.tasks if t.executing_seconds is not None]) == len(held)
                and look
            ),
            what="a heartbeat that names the tasks",
        )
        Event("go on").set()
        client.gather(held)
        held.clear()  # their results would be computed again when the worker dies
        killed = client.submit(die, folder, key="die-1")
        wait_until(lambda: killed.status == "error", what="KilledWorker")
        client.submit(twice, folder, key="twice-1").result()
        cancelled = client.submit(hold, folder, "c", "stop", key="cancelled-1")
        assert Event("began-c").wait(60)
        cancelled.cancel()
        wait_until(
            lambda: "cancelled-1" not in {task.key for task in dask_strata.live(client).tasks},
            what="the task to be forgotten",
        )
        cancelled_at = time.time()
        wait_until(lambda: time.time() > cancelled_at + 0.5, what="half a second")
        Event("stop").set()
        wait_until((folder / "c ended").exists, what="the function to return")
        assert client.submit(int, 1, key="last-1").result() == 1
    facts["run"], facts["insights"] = run, summarize(run).insights
    return facts


def last(run: Run) -> float:
    """Return the end of the record, in seconds since the epoch."""
    return run.rows("select epoch_ns(last) / 1e9 as t from _bounds")[0]["t"]


def of_key(run: Run, key: str) -> list[dict[str, Any]]:
    """Return the attempts at a task."""
    return run.rows("select * from attempts where key = ? order by attempt", key)


def test_running_tasks_are_compute_until_now(recorded: dict[str, Any]) -> None:
    """While both threads run one task each, nearly all thread-seconds since then are compute."""
    seconds = recorded["live"]["breakdown"]["seconds"]
    begun = noted(recorded["folder"], "a") + noted(recorded["folder"], "b")
    [worker] = recorded["live workers"]
    start = worker["start"].timestamp()
    # The look was at least 2 s after the later start, and threads were free only before.
    assert seconds["compute"] > 2 * 2
    free = sum(seconds.values()) - seconds["compute"]
    assert free == pytest.approx(sum(t - start for t in begun), abs=0.3)
    assert recorded["live"]["active_seconds"] > 2
    assert {p["prefix"] for p in recorded["live"]["breakdown"]["prefixes"]} == {"hold-a", "hold-b"}


def test_the_path_of_a_running_run_is_computing(recorded: dict[str, Any]) -> None:
    """The critical path ends with a running task, whose time is compute."""
    path = recorded["live path"]
    assert path.seconds["compute"] > 2
    end = path.segments[-1]
    [began] = noted(recorded["folder"], end.key[-1])
    assert path.seconds["compute"] == pytest.approx(end.stop / 1e9 - began, abs=0.2)
    assert recorded["live"]["path_seconds"]["compute"] > 2


def test_a_snapshot_has_how_long_tasks_run(recorded: dict[str, Any]) -> None:
    """The time since the start of a function, by the worker's heartbeats."""
    look = recorded["snapshot"]
    for task in look.tasks:
        [began] = noted(recorded["folder"], task.key[-1])
        since = look.taken.timestamp() - began
        assert task.executing_seconds == pytest.approx(since, abs=0.5)


def test_killed_attempts_have_their_compute_seconds(recorded: dict[str, Any]) -> None:
    """Both attempts computed until they killed their workers, and no longer than they lasted."""
    run, folder = recorded["run"], recorded["folder"]
    attempts = of_key(run, "die-1")
    assert [a["outcome"] for a in attempts] == ["lost", "erred"]
    times = zip(noted(folder, "die"), noted(folder, "died"), strict=True)
    for attempt, (began, ended) in zip(attempts, times, strict=True):
        truth = ended - began
        assert truth - 0.1 < attempt["compute_seconds"] < truth + NOTICED
    assert "lost-worker" in [i.cause for i in recorded["insights"]]


def test_rescheduled_and_cancelled_attempts_have_theirs(recorded: dict[str, Any]) -> None:
    """Functions that ask for another attempt, or that were cancelled, ran as long as they ran."""
    run, folder = recorded["run"], recorded["folder"]
    truth = [b - a for a, b in zip(noted(folder, "twice"), noted(folder, "tried"), strict=True)]
    attempts = of_key(run, "twice-1")
    assert [a["outcome"] for a in attempts] == ["rescheduled", "memory"]
    for attempt, seconds in zip(attempts, truth, strict=True):
        assert seconds - 0.1 < attempt["compute_seconds"] < seconds + NOTICED
    [attempt] = of_key(run, "cancelled-1")
    assert attempt["outcome"] == "released"
    [began], [ended] = noted(folder, "c"), noted(folder, "c ended")
    assert ended - began - 0.1 < attempt["compute_seconds"] < ended - began + NOTICED
    assert ended - began > 0.5


def test_everything_still_adds_up(recorded: dict[str, Any]) -> None:
    """Compute is what the tasks measured; the path has the attempts that were repeated."""
    run, folder = recorded["run"], recorded["folder"]
    spans = [("a", "a ended"), ("b", "b ended"), ("c", "c ended")]
    spans += [("die", "died"), ("twice", "tried")]
    truth = sum(sum(noted(folder, b)) - sum(noted(folder, a)) for a, b in spans)
    spent = breakdown(run)
    assert truth - 0.3 < spent.seconds["compute"] < truth + 2 * NOTICED
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)
    rest = sum(seconds for kind, seconds in spent.seconds.items() if kind not in PREFIX_KINDS)
    shares = sum(p.total_seconds for p in spent.prefixes) + rest
    assert shares == pytest.approx(spent.total_seconds)
    path = critical_path(run)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    died = [s for s in path.segments if s.key == "die-1" and s.cause == "compute"]
    assert (
        sum(s.seconds for s in died) > sum(noted(folder, "died")) - sum(noted(folder, "die")) - 0.2
    )
