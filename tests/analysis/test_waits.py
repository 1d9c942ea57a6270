"""Waiting has causes of its own: a turn to fetch, a resource, a paused worker, a blocked loop.

The truth is measured by the tasks, by the pickling of their results, and by the client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster, wait
from distributed.core import Status

import dask_strata
from dask_strata import Run
from dask_strata.analysis.breakdown import breakdown
from dask_strata.analysis.critical_path import critical_path
from dask_strata.analysis.summary import summarize
from dask_strata.report.page.page import make_page
from dask_strata.report.summary import summary_json
from dask_strata.report.words import percent
from tests.conftest import wait_until

pytestmark = pytest.mark.long


def note(folder: Path, name: str) -> None:
    """Write the time to a file that does not exist."""
    with (folder / name).open("x", encoding="utf-8") as file:
        file.write(f"{time.time()}")


def noted(folder: Path, name: str) -> float:
    """Return the time in a file."""
    return float((folder / name).read_text(encoding="utf-8"))


class Slow:
    """A result that takes a second and a half to send."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def __reduce__(self) -> tuple[Any, ...]:
        note(self.folder, f"{self.name}-sent-from")
        time.sleep(1.5)
        note(self.folder, f"{self.name}-sent")
        return Slow, (self.folder, self.name)


def use(folder: Path, name: str, _: Slow) -> None:
    """Note the start of a task that needs a slow result."""
    note(folder, f"{name}-used")


def hold(folder: Path, name: str, until: str) -> None:
    """Note the start, wait for an event, and note the end."""
    note(folder, name)
    Event(f"began-{name}").set()
    assert Event(until).wait(120)
    note(folder, f"{name}-ended")


async def block(dask_worker: Any, folder: Path) -> None:
    """Block the event loop for 1.5 s."""
    note(folder, "block-began")
    time.sleep(1.5)  # noqa: ASYNC251  a blocked loop is the subject
    note(folder, "block-ended")


def pause(dask_worker: Any) -> None:
    """Pause the worker, as Dask does with too little memory."""
    dask_worker.status = Status.paused


def resume(dask_worker: Any) -> None:
    """Let it run again."""
    dask_worker.status = Status.running


def n_queued(dask_scheduler: Any) -> int:
    """Return the number of queued tasks."""
    return len(dask_scheduler.queued)


def assigned(dask_scheduler: Any, key: str) -> float:
    """Return when Dask's own story of a task says that it was assigned to a worker."""
    story = dask_scheduler.story(key)
    return next(float(entry[-1]) for entry in story if entry[0] == key and entry[2] == "processing")


def is_known(dask_scheduler: Any, key: str) -> bool:
    """Return whether the scheduler knows the task."""
    return key in dask_scheduler.tasks


def passed(seconds: float) -> None:
    """Wait until some seconds have passed."""
    until = time.time() + seconds
    wait_until(lambda: time.time() > until, what=f"{seconds} s")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run with each kind of waiting once, with what the client knows, and the folder."""
    folder = tmp_path_factory.mktemp("waits")
    facts: dict[str, Any] = {"folder": folder}
    settings = {"distributed.worker.memory.pause": False}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", resources={"GPU": 1}
        ) as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(client.nthreads())
        with dask_strata.record(folder / "fetch", client=client) as run:
            results = [
                client.submit(Slow, folder, n, key=n, workers=[a], pure=False) for n in ("x", "y")
            ]
            wait(results)
            first = client.submit(use, folder, "x", results[0], key="use-x", workers=[b])
            wait_until((folder / "x-sent-from").exists, what="the first transfer")
            second = client.submit(use, folder, "y", results[1], key="use-y", workers=[b])
            client.gather([first, second])
            facts["second assigned"] = client.run_on_scheduler(assigned, key="use-y")
        facts["fetch"] = run
        results.clear()
        del first, second
        with dask_strata.record(folder / "resource", client=client) as run:
            one = {"resources": {"GPU": 1}, "workers": [a]}
            first = client.submit(hold, folder, "gpu1", "go", key="gpu-1", **one)
            assert Event("began-gpu1").wait(60)
            second = client.submit(hold, folder, "gpu2", "go", key="gpu-2", **one)
            passed(1.5)
            Event("go").set()
            client.gather([first, second])
            facts["gpu assigned"] = client.run_on_scheduler(assigned, key="gpu-2")
        facts["resource"] = run
        with dask_strata.record(folder / "paused", client=client) as run:
            client.run(pause)
            facts["paused"] = time.time()
            after = client.submit(time.time, key="after-pause")
            wait_until(
                lambda: client.run_on_scheduler(is_known, key="after-pause"), what="the submission"
            )
            facts["submitted while paused"] = time.time()
            passed(1.5)
            facts["resumed"] = time.time()
            client.run(resume)
            facts["after pause"] = after.result()
        facts["paused run"] = run
        with dask_strata.record(folder / "blocked", client=client) as run:
            blocking = client.run(block, folder=folder, workers=[b], wait=False)
            wait_until((folder / "block-began").exists, what="the block")
            facts["blocked submitted"] = time.time()
            facts["after block"] = client.submit(time.time, key="after-block", workers=[b]).result()
            assert (folder / "block-ended").exists()
            facts["blocked assigned"] = client.run_on_scheduler(assigned, key="after-block")
            del blocking
        facts["blocked run"] = run
    return facts


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run in which tasks are queued: one worker is busy, and the task on the other fetches."""
    folder = tmp_path_factory.mktemp("queued")
    settings = {"distributed.scheduler.worker-saturation": 1.0}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        a, b = sorted(client.nthreads())
        with dask_strata.record(folder / "run", client=client) as run:
            result = client.submit(Slow, folder, "x", key="x", workers=[a], pure=False)
            wait(result)
            busy = client.submit(hold, folder, "busy", "go", key="busy", workers=[a])
            assert Event("began-busy").wait(60)
            fetching = client.submit(use, folder, "x", result, key="use-x", workers=[b])
            wait_until((folder / "x-sent-from").exists, what="the transfer")
            note(folder, "submitted")
            roots = client.map(time.sleep, [0.1] * 20, pure=False, key="root")
            wait_until(lambda: client.run_on_scheduler(n_queued) > 0, what="the queue")
            note(folder, "queued")
            fetching.result()
            Event("go").set()
            client.gather([busy, *roots])
    return run, folder


def test_a_task_is_queued_while_another_fetches(queued: tuple[Run, Path]) -> None:
    """The place that a queued task waits for is taken by a task that fetches its dependency."""
    run, folder = queued
    most, least = (noted(folder, "x-sent") - noted(folder, n) for n in ("submitted", "queued"))
    states = run.rows("select finish_state from scheduler_transitions where key like '%root%'")
    assert {"finish_state": "queued"} in states
    seconds: Counter[str] = Counter()
    for segment in critical_path(run).segments:
        seconds[segment.cause] += segment.seconds if segment.prefix == "root" else 0
    assert max(least, 0.1) - 0.1 < seconds["transfer"] < most + 0.5
    assert seconds["transfer"] > 0
    assert_adds_up(run)


def assert_adds_up(run: Run) -> None:
    """Assert that thread-seconds and the critical path add up."""
    spent, path = breakdown(run), critical_path(run)
    assert sum(spent.seconds.values()) == pytest.approx(spent.total_seconds)
    assert sum(path.seconds.values()) == pytest.approx(path.makespan_seconds)
    without = ("paused worker", "blocked event loop", "silent worker", "idle")
    shares = sum(p.total_seconds for p in spent.prefixes) + sum(spent.seconds[k] for k in without)
    assert shares == pytest.approx(spent.total_seconds)
    for a, b in zip(path.segments, path.segments[1:], strict=False):
        assert a.stop == b.start


KIND_OF_RUN = {
    "fetch": "waiting to fetch",
    "resource": "waiting for a resource",
    "paused run": "paused worker",
    "blocked run": "blocked event loop",
}


def on_path(run: Run, key: str, cause: str) -> float:
    """Return the seconds of a task on the critical path with a cause."""
    return sum(s.seconds for s in critical_path(run).segments if (s.key, s.cause) == (key, cause))


def test_waiting_for_a_turn_to_fetch(recorded: dict[str, Any]) -> None:
    """While one slow result arrives, the task that needs another one waits for its turn."""
    run, folder = recorded["fetch"], recorded["folder"]
    turn = noted(folder, "x-sent") - recorded["second assigned"]
    sent = noted(folder, "y-sent") - noted(folder, "y-sent-from")
    assert turn > 0.5
    assert on_path(run, "use-y", "waiting to fetch") == pytest.approx(turn, abs=0.3)
    assert on_path(run, "use-y", "transfer") == pytest.approx(sent, abs=0.3)
    spent = breakdown(run).seconds
    assert spent["waiting to fetch"] == pytest.approx(turn, abs=0.3)
    assert spent["transfer"] == pytest.approx(3.0, abs=0.5)
    assert_adds_up(run)


def test_waiting_for_a_resource(recorded: dict[str, Any]) -> None:
    """A task waits for the resource that another one uses, while a thread is free."""
    run = recorded["resource"]
    waited = noted(recorded["folder"], "gpu1-ended") - recorded["gpu assigned"]
    assert on_path(run, "gpu-2", "waiting for a resource") == pytest.approx(waited, abs=0.3)
    assert breakdown(run).seconds["waiting for a resource"] == pytest.approx(waited, abs=0.3)
    assert "paused worker" not in critical_path(run).seconds
    assert_adds_up(run)


def test_paused_workers(recorded: dict[str, Any]) -> None:
    """While both workers are paused, a task waits for them; their four threads do nothing."""
    run = recorded["paused run"]
    waited = recorded["resumed"] - recorded["paused"]
    least = recorded["resumed"] - recorded["submitted while paused"]
    assert least - 0.3 < on_path(run, "after-pause", "paused worker") < waited + 0.3
    assert breakdown(run).seconds["paused worker"] == pytest.approx(4 * waited, abs=1)
    assert_adds_up(run)


def test_a_blocked_event_loop(recorded: dict[str, Any]) -> None:
    """A task waits while the event loop of its worker is blocked."""
    run, folder = recorded["blocked run"], recorded["folder"]
    ended = noted(folder, "block-ended")
    waited, since_submission = (ended - recorded[f"blocked {k}"] for k in ("assigned", "submitted"))
    # Before the task was assigned, the scheduler's event loop may have been blocked.
    assert waited - 0.3 < on_path(run, "after-block", "blocked event loop") < since_submission + 0.3
    assert breakdown(run).seconds["blocked event loop"] == pytest.approx(waited, abs=0.3)
    assert_adds_up(run)


def test_the_first_screen_and_the_page_have_the_same_words(recorded: dict[str, Any]) -> None:
    """`show`, its JSON and the page have the same causes with the same seconds."""
    for name, kind in KIND_OF_RUN.items():
        run = recorded[name]
        found = summarize(run)
        seconds = found.breakdown.seconds[kind]
        facts = json.loads(summary_json(found))
        assert facts["breakdown"]["seconds"][kind] == pytest.approx(breakdown(run).seconds[kind])
        assert facts["path_seconds"][kind] == pytest.approx(critical_path(run).seconds[kind])
        assert f"{kind}: <span" in make_page(run)
        command = [sys.executable, "-m", "dask_strata", "show", str(run.path)]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        share = percent(seconds / found.breakdown.total_seconds)
        assert f"{kind} {share}" in " ".join(shown.split())
