"""A task that failed with KilledWorker is shown with what ended each of its workers.

The truth is what the tests do to workers, and the process ids that the tasks note.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.story import story
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.timeline.timeline import timeline
from dask_strata.analysis.words import size
from dask_strata.report.story import plain_story
from tests.conftest import rows, wait_until
from tests.support.deployment import PRELOAD, Deployment
from tests.support.synthetic import SECOND, T0, Process, new_run

pytestmark = pytest.mark.long

#: Each task may take one worker with it, and fails with the second.
N_DEATHS = 2
MEMORY_LIMIT = 400_000_000

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


def note(folder: Path, name: str) -> list[int]:
    """Append the process id to a file, and return all in it."""
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return noted(folder, name)


def noted(folder: Path, name: str) -> list[int]:
    """Return the process ids in a file."""
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def crash(folder: Path) -> None:
    """Die as after a fault in C code."""
    note(folder, "crash")
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def leave(folder: Path) -> None:
    """End the process with status 3, once the start is on record."""
    dask_strata.flush()
    note(folder, "leave")
    os._exit(3)


def hold(folder: Path) -> None:
    """Wait for the end, which comes from outside."""
    dask_strata.flush()
    note(folder, "hold")
    time.sleep(600)


def hoard(folder: Path) -> None:
    """Use memory until the nanny kills the process."""
    note(folder, "hoard")
    parts = []
    while True:
        parts.append(b"x" * 5_000_000)
        time.sleep(0.01)


def n_workers(client: Client) -> int:
    """Return how many workers the scheduler has; the client's copy may miss some."""
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers)))


@dataclass
class Recorded:
    """A recorded run, and the process ids that tasks noted, by name."""

    run: Run
    pids: dict[str, list[int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run of four tasks that each take both workers with them, in their own way."""
    folder = tmp_path_factory.mktemp("killed")
    memory = {"target": False, "spill": False, "pause": False, "terminate": 0.9}
    with (
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": N_DEATHS - 1,
                # The cluster gives up a worker whose next process dies 15 s after the one before.
                "distributed.deploy.lost-worker-timeout": "1h",
                **{f"distributed.worker.memory.{name}": value for name, value in memory.items()},
            }
        ),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=MEMORY_LIMIT,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        for function in (crash, leave, hold, hoard):
            name = function.__name__
            wait_until(lambda: n_workers(client) == 2, what="both workers")
            task = client.submit(function, folder, key=f"{name}-1")
            for n in range(1, N_DEATHS + 1 if function is hold else 1):
                wait_until(lambda n=n: len(noted(folder, "hold")) == n, what="the task to begin")
                os.kill(noted(folder, "hold")[-1], signal.SIGKILL)
            assert "KilledWorker" in repr(task.exception(timeout=120))
        # The nanny reports the end of the last process before it starts another one.
        wait_until(lambda: n_workers(client) == 2, what="both workers")
    names = ("crash", "leave", "hold", "hoard")
    return Recorded(open_run(run.path), {name: noted(folder, name) for name in names})


#: Cause, signal, exit status and the words for each task.
ENDS: dict[str, tuple[str, str | None, int | None, str]] = {
    "crash": ("signal", "SIGSEGV", None, "died of SIGSEGV"),
    "leave": ("exit", None, 3, "exited with status 3"),
    "hold": ("signal", "SIGKILL", None, "died of SIGKILL"),
    "hoard": ("memory limit", "SIGTERM", None, "used too much memory"),
}
every_task = pytest.mark.parametrize("name", ENDS)


@every_task
def test_the_table(recorded: Recorded, name: str) -> None:
    """SQL: each attempt at the task leads to the end of its worker."""
    assert len(recorded.pids[name]) == N_DEATHS
    found = rows(
        recorded.run,
        "select w.*, a.worker_end from attempts a join worker_ends w "
        f"using (worker, stimulus_id) where a.key = '{name}-1' order by attempt",
    )
    assert [r["pid"] for r in found] == recorded.pids[name]
    assert {(r["cause"], r["signal"], r["exit_status"]) for r in found} == {ENDS[name][:3]}
    assert {r["ended"] for r in found} == {"unexpected"}
    assert {r["memory_limit_bytes"] for r in found} == {MEMORY_LIMIT}
    assert {r["name"] for r in found} == {"0", "1"}
    assert all(r["exited"] > r["start"] for r in found)
    for r in found:
        if name == "hoard":
            assert 0.8 * MEMORY_LIMIT < r["memory_bytes"] < 2 * MEMORY_LIMIT
            assert r["start"] < r["killed"] <= r["exited"]
        else:
            assert r["memory_bytes"] is None is r["killed"]
    labels = {"crash": "SIGSEGV", "leave": "exit status 3", "hold": "SIGKILL"}
    assert {r["worker_end"] for r in found} == {labels.get(name, "memory limit")}


@every_task
def test_story(recorded: Recorded, name: str) -> None:
    """A line for each attempt, with worker, process and time; and events in time order."""
    told = story(recorded.run.task(f"{name}-1"))
    lines = [line.strip() for line in plain_story(told).splitlines()]
    lines = [line for line in lines if line.startswith("attempt ")]
    assert len(lines) == N_DEATHS
    for n, (line, pid) in enumerate(zip(lines, recorded.pids[name], strict=True), 1):
        assert line.startswith(f"attempt {n} of {N_DEATHS}: worker ")
        assert f"pid {pid} " in line
        assert f" {ENDS[name][3]}" in line
        if name == "hoard":
            used = next(e["memory_bytes"] for e in told.worker_ends if e["pid"] == pid)
            assert f"({size(used)} of {size(MEMORY_LIMIT)}, killed by the nanny)" in line
        assert "removed at " in line
    process = [e.what for e in told.events if e.layer == "nanny" and "killed" not in e.what]
    how = f"exited with status {ENDS[name][2]}" if name == "leave" else f"died of {ENDS[name][1]}"
    assert process == [f"process {p} {how}" for p in recorded.pids[name]]
    kills = [e.what for e in told.events if "because of its memory" in e.what]
    assert len(kills) == (N_DEATHS if name == "hoard" else 0)
    assert [e.time for e in told.events] == sorted(e.time for e in told.events)


def test_commands(recorded: Recorded, strata: Strata) -> None:
    """The story's JSON, and the table of tasks that failed."""
    done = strata("story", recorded.run.path, "leave-1", "--format", "json", check=True)
    ends = json.loads(done.stdout)["worker_ends"]
    assert [end["pid"] for end in ends] == recorded.pids["leave"]
    arguments = ("tasks", recorded.run.path, "--state", "erred", "--format", "json")
    found = json.loads(strata(*arguments, check=True).stdout)
    assert {row["key"]: row["worker_ends"] for row in found} == {
        "crash-1": "SIGSEGV",
        "leave-1": "exit status 3",
        "hold-1": "SIGKILL",
        "hoard-1": "memory limit",
    }


def test_first_screen_and_page(recorded: Recorded, strata: Strata) -> None:
    """Under each kind of failure, how many workers ended how, and which."""
    lines = strata("show", recorded.run.path, check=True).stdout.splitlines()
    page = recorded.run.path.parent / "page.html"
    strata("report", recorded.run.path, "-o", page, check=True)
    html = page.read_text(encoding="utf-8")
    words = " ".join(" ".join(lines).split())
    assert "ended unexpectedly: " in words
    failures = summarize(recorded.run).failures
    assert {failure.prefix for failure in failures} == ENDS.keys()
    for n, failure in enumerate(failures):
        name = failure.prefix
        [ends] = failure.worker_ends
        assert (ends.n_workers, ends.n_tasks, ends.n_attempts) == (N_DEATHS, 1, N_DEATHS)
        assert ends.names == ("0", "1")
        assert (ends.cause, ends.signal, ends.exit_status) == ENDS[name][:3]
        assert ends.sentence.startswith(f"{N_DEATHS} workers {ENDS[name][3]}")
        # It is not stated that the task was running, unless its start is on record.
        assert ends.ran or name not in {"leave", "hold"}
        while_ = "running the task" if ends.ran else "the task was assigned to them"
        assert f" while {while_}: " in ends.sentence
        assert f"{N_DEATHS} workers {ENDS[name][3]}" in html
        if not n:
            assert f"{name}-1" in words
            assert ends.sentence in words


@every_task
def test_panel_of_an_attempt(recorded: Recorded, name: str) -> None:
    """The page's timeline has the end of the worker of each attempt."""
    drawn = timeline(recorded.run)
    keys = drawn.keys["key"].to_pylist()
    texts = [t for i, t in drawn.worker_ends.items() if keys[drawn.bars.task[i]] == f"{name}-1"]
    assert all(ENDS[name][3] in text for text in texts)
    pids = sorted(int(t.partition("pid ")[2].partition(" ")[0]) for t in texts)
    assert pids == sorted(recorded.pids[name])


def in_deployment(deployment: Deployment, *arguments: Any) -> tuple[Run, int]:
    """Return the run of a task whose worker is killed from outside, and its process."""
    deployment.environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "0"
    deployment.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    deployment.scheduler(*PRELOAD)
    deployment.worker(*arguments)
    with deployment.client() as client:
        client.wait_for_workers(1)
        task = client.submit(hold, deployment.folder, key="hold-1")
        wait_until(lambda: noted(deployment.folder, "hold"), what="the task to begin")
        pid = noted(deployment.folder, "hold")[0]
        os.kill(pid, signal.SIGKILL)
        assert "KilledWorker" in repr(task.exception(timeout=120))
        if "--no-nanny" not in arguments:
            client.wait_for_workers(1)
    return deployment.run(), pid


def end_of(run: Run) -> dict[str, Any]:
    """Return the end of the worker of the task."""
    [end] = rows(
        run,
        "select w.* from attempts a join worker_ends w using (worker, stimulus_id) "
        "where a.key = 'hold-1'",
    )
    return end


def test_without_a_nanny(deployment: Deployment, strata: Strata) -> None:
    """The connection was lost; how the process ended is unknown, and never guessed."""
    run, pid = in_deployment(deployment, "--no-nanny")
    end = end_of(run)
    assert (end["cause"], end["pid"]) == ("connection lost", pid)
    assert end["signal"] is None is end["exit_status"]
    assert end["exited"] is None
    assert "no end of the process on record" in strata("show", run.path, check=True).stdout


def test_a_worker_without_a_name(deployment: Deployment) -> None:
    """Its name is its address, which its nanny does not have: host and process id match."""
    run, pid = in_deployment(deployment, "--nanny")
    end = end_of(run)
    assert (end["cause"], end["signal"], end["pid"]) == ("signal", "SIGKILL", pid)


def cut(dask_scheduler: Any) -> None:
    """Cut the scheduler's connections to workers."""
    for comm in list(dask_scheduler.stream_comms.values()):
        comm.abort()


def stop(client: Client, pid: int) -> None:
    """Stop a process, so that it sends no heartbeats."""
    del client
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("cause", ["connection lost", "no heartbeat"])
def test_workers_that_did_not_die(runs: Path, tmp_path: Path, cause: str) -> None:
    """A worker whose connection is cut, or that is stopped, is removed: its process goes on."""
    with (
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": 0,
                "distributed.scheduler.worker-ttl": "3s",
            }
        ),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        task = client.submit(hold, tmp_path, key="hold-1")
        wait_until(lambda: noted(tmp_path, "hold"), what="the task to begin")
        if cause == "connection lost":
            client.run_on_scheduler(cut)
        else:
            stop(client, noted(tmp_path, "hold")[0])
        assert "KilledWorker" in repr(task.exception(timeout=120))
    end = end_of(open_run(run.path))
    assert (end["cause"], end["pid"]) == (cause, noted(tmp_path, "hold")[0])


def test_the_same_process_id_on_two_hosts(tmp_path: Path) -> None:
    """An exit on one host is no exit of a worker on another, and no later connection's."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.9:1")
    added = {"action": "add", "reason": "1 threads, 4096 bytes, pid 7"}
    workers = {"a": "tcp://10.0.0.1:5", "b": "tcp://10.0.0.2:5"}
    events: list[dict[str, Any]] = []
    for name, worker in workers.items():
        at = {"worker": worker, "name": name}
        events += [
            {"time": T0, **at, **added},
            {
                "time": T0 + 3 * SECOND,
                "worker": worker,
                "action": "remove",
                "reason": f"unexpected: handle-worker-cleanup-{name}",
                "stimulus_id": f"handle-worker-cleanup-{name}",
            },
        ]
    scheduler.write("worker_events", events)
    scheduler.end()
    nanny = Process(folder, "nanny-1", role="nanny", address="tcp://10.0.0.2:9", host="second")
    exit_ = {"action": "process-exit", "name": "None", "reason": "pid 7 was killed by SIGBUS"}
    nanny.write("worker_events", [{"time": T0 + 2 * SECOND, **exit_}])
    nanny.end()
    found = rows(open_run(folder), "select * from worker_ends order by name")
    assert [(r["name"], r["cause"], r["signal"]) for r in found] == [
        ("a", "connection lost", None),
        ("b", "signal", "SIGBUS"),
    ]
    assert [r["memory_limit_bytes"] for r in found] == [4096, 4096]


@pytest.mark.release
def test_workers_of_a_scheduler_that_closes_end_as_planned(deployment: Deployment) -> None:
    """A scheduler that is told to close ends its connections before workers announce anything."""
    scheduler = deployment.scheduler(*PRELOAD)
    workers = [deployment.worker("--no-nanny", "--name", name) for name in ("a", "b")]
    with deployment.client() as client:
        client.wait_for_workers(2, timeout=60)
        assert client.submit(int, 1).result() == 1
    deployment.end(scheduler)
    for worker in workers:
        deployment.end(worker)
    run = deployment.run()
    ends = rows(run, "select ended, reason from worker_ends")
    assert [end["ended"] for end in ends] == ["planned", "planned"], ends
    assert not [i.text for i in summarize(run).insights if "unexpectedly" in i.text]


#: How a worker without a nanny ended, whether a task was lost with it, how many seconds before its
#: scheduler, and why that ended; and whether the end was planned or not.
TOGETHER = [
    ("SIGTERM", False, 5, "closed", "planned"),
    ("process exit", False, 5, "closed", "planned"),
    ("SIGTERM", True, 1, "SIGTERM", "planned"),
    ("SIGTERM", True, 1, "closed", "unexpected"),
    ("SIGTERM", False, 60, "closed", "unexpected"),
    (None, False, 1, "closed", "unexpected"),
]


@pytest.mark.parametrize("case", TOGETHER)
def test_ends_with_the_cluster(tmp_path: Path, case: tuple[Any, ...]) -> None:
    """An orderly end shortly before the scheduler's is planned, unless it cost a task."""
    reason, loses, before, scheduler_reason, ended = case
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://h:1")
    worker = "tcp://h:2"
    scheduler.write("worker_events", [
        {"time": T0, "worker": worker, "action": "add", "reason": "1 threads, 1 bytes, pid 7"},
        {"time": T0 + SECOND, "worker": worker, "action": "remove", "stimulus_id": "cleanup",
         "reason": "unexpected: cleanup"},
    ])  # fmt: skip
    scheduler.write(
        "scheduler_transitions",
        [{"time": T0 + SECOND, "key": "a", "start_state": "processing", "finish_state": "released",
          "worker": worker, "stimulus_id": "cleanup" if loses else "other"}],
    )  # fmt: skip
    scheduler.end(scheduler_reason, T0 + (1 + before) * SECOND)
    process = Process(folder, "worker-1", address=worker)
    if reason is not None:
        process.end(reason, T0 + SECOND)
    [end] = rows(open_run(folder), "select * from worker_ends")
    assert end["ended"] == ended
    assert (end["signal"] == "SIGTERM") == (reason == "SIGTERM")


@pytest.mark.parametrize("client", [None, "Client-1"])
def test_an_end_that_cost_another_clients_task(tmp_path: Path, client: str | None) -> None:
    """A run that is read for one client has the same ends of workers."""
    folder = new_run(tmp_path / "r")
    worker, stop = "tcp://h:2", T0 + SECOND
    scheduler = Process(folder, "scheduler-1", address="tcp://h:1")
    scheduler.write("worker_events", [
        {"time": T0, "worker": worker, "action": "add", "reason": "1 threads, 1 bytes, pid 7"},
        {"time": stop, "worker": worker, "action": "remove", "stimulus_id": "cleanup",
         "reason": "unexpected: cleanup"},
    ])  # fmt: skip
    scheduler.write("submissions", [
        {"time": T0, "submission": f"s-{n}", "client": f"Client-{n}", "n_tasks": 1} for n in (1, 2)
    ])  # fmt: skip
    scheduler.write(
        "graph_tasks",
        [{"submission": f"s-{n}", "key": f"key-{n}", "prefix": "key"} for n in (1, 2)],
    )
    scheduler.write(
        "scheduler_transitions",
        [{"time": stop, "key": "key-2", "start_state": "processing", "finish_state": "released",
          "worker": worker, "stimulus_id": "cleanup"}],
    )  # fmt: skip
    scheduler.end("closed", stop + SECOND)
    process = Process(folder, "worker-1", address=worker)
    process.write("worker_transitions", [
        {"time": T0, "worker": worker, "key": "key-2", "start_state": "ready",
         "finish_state": "executing", "stimulus_id": "compute-task-1"},
    ])  # fmt: skip
    process.end("SIGTERM", stop)
    [end] = rows(open_run(folder, client=client), "select * from worker_ends")
    assert end["ended"] == "unexpected"
