"""`dask-strata why` on real clusters: workers are ended in each way, and the answer names it.

The truth is what the tests do: signals, statuses, process ids, keys, bytes and seconds.
"""

from __future__ import annotations

import inspect
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
from distributed import Client, LocalCluster, wait

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.why import PostMortem, why
from dask_strata.analysis.words import size
from tests.conftest import runs_in, wait_until
from tests.support.deployment import PRELOAD, Deployment
from tests.why import ways
from tests.why.control_group import limited_group
from tests.why.ways import HELD_BYTES, MAKE_SECONDS, fault, hoard, hold, leave, make, noted

pytestmark = pytest.mark.long

Strata = Callable[..., "subprocess.CompletedProcess[str]"]

MEMORY_LIMIT = 500_000_000

#: Results on both workers together when one ends.
N_HELD = 4

#: Folders of the tests' modules, and of those that this process was given.
_PATHS = [Path(__file__).parents[2], *filter(None, [os.environ.get("PYTHONPATH")])]

#: Most lines of a screen.
SCREEN = 40

#: For each way: the task, the signal from outside, and then cause, signal, exit status, and words
#: of the screen.
WAYS: dict[str, tuple[Callable[..., None], signal.Signals | None, tuple[Any, ...], str]] = {
    "kill": (hold, signal.SIGKILL, ("signal", "SIGKILL", None), "died of SIGKILL"),
    "terminate": (hold, signal.SIGTERM, ("signal", "SIGTERM", None), "was ended by SIGTERM"),
    "fault": (fault, None, ("signal", "SIGSEGV", None), "died of SIGSEGV"),
    "leave": (leave, None, ("exit", None, 7), "exited with status 7"),
    "hoard": (hoard, None, ("memory limit", "SIGTERM", None), "used too much memory"),
}
each_way = pytest.mark.parametrize("way", WAYS)


@dataclass
class Recorded:
    """A recorded run, and for each way: the process id, seconds of its task, and held results."""

    run: Run
    pids: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)


def n_workers(client: Client) -> int:
    """Return how many workers the scheduler has."""
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers)))


def end_one(client: Client, folder: Path, way: str, found: Recorded) -> None:
    """End a worker that holds results and runs a task; note what the test and Dask saw of it."""
    function, number, *_ = WAYS[way]
    wait_until(lambda: n_workers(client) == 2, what="both workers")
    held = [client.submit(make, n, key=f"{way}-held-{n}") for n in range(N_HELD)]
    wait(held, timeout=60)
    [victim] = client.who_has(held[:1])[held[0].key]
    found.held[way] = {key for key in client.has_what()[victim] if key.startswith(way)}
    task = client.submit(function, folder, way, key=f"{way}-task", workers=[victim])
    wait_until(lambda: noted(folder, way), what="the task to begin")
    began = time.monotonic()
    found.pids[way] = noted(folder, way)[0]
    if number is not None:
        os.kill(found.pids[way], number)
    assert "KilledWorker" in repr(task.exception(timeout=120))
    found.seconds[way] = time.monotonic() - began
    wait(held, timeout=60)  # they are computed again


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run in which a worker is ended in each way, while it ran a task and held results."""
    folder = tmp_path_factory.mktemp("ended")
    memory = {"target": False, "spill": 0.7, "pause": 0.85, "terminate": 0.9}
    settings = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    settings |= {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.work-stealing": False,
        "distributed.deploy.lost-worker-timeout": "1h",
    }
    found = Recorded(None)  # type: ignore[arg-type]
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=MEMORY_LIMIT, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(folder / "runs", client=client) as run,
    ):
        for way in WAYS:
            end_one(client, folder, way, found)
        wait_until(lambda: n_workers(client) == 2, what="both workers")
    found.run = open_run(run.path)
    return found


def post_mortem(run: Run, worker: str | int) -> PostMortem:
    """Return the one post-mortem of a worker."""
    [found] = why(run, worker).post_mortems
    return found


@each_way
def test_the_cause_and_the_task(recorded: Recorded, way: str) -> None:
    """How it ended, and the task that ran then, with its time and the line that submitted it."""
    found = post_mortem(recorded.run, recorded.pids[way])
    end = found.end
    assert (end.pid, end.ended) == (recorded.pids[way], "unexpected")
    # At its memory limit, a nanny sends SIGTERM, and SIGKILL if the process does not end.
    number = "SIGTERM" if (end.cause, end.signal) == ("memory limit", "SIGKILL") else end.signal
    assert (end.cause, number, end.exit_status) == WAYS[way][2]
    assert found.attempts.running == 1, found.attempts
    [attempt] = [a for a in found.attempts.first if a.state == "running"]
    assert (attempt.key, attempt.outcome) == (f"{way}-task", "erred")
    # From the task's note until the client had its error; the task flushes before the note.
    assert attempt.seconds is not None
    assert attempt.seconds < recorded.seconds[way] + 5
    if WAYS[way][0] is hoard:
        assert attempt.seconds == pytest.approx(recorded.seconds[way], abs=2)
    [line] = [each for each in attempt.lines if each.kind == "submitted"]
    assert (line.file, line.function) == (__file__, "end_one")
    assert "client.submit(function, folder, way, key" in (line.text or "")


@each_way
def test_lost_results(recorded: Recorded, way: str) -> None:
    """Results that only it held, their bytes, and that they were computed again in some seconds."""
    lost = post_mortem(recorded.run, recorded.pids[way]).lost
    n = len(recorded.held[way])
    assert set(lost.keys) == recorded.held[way]
    assert (lost.n_held, lost.n_lost, lost.n_again, lost.n_computed) == (n, n, n, n)
    assert lost.lost_bytes == n * HELD_BYTES
    assert lost.seconds == pytest.approx(n * MAKE_SECONDS, rel=0.5)
    assert lost.seconds >= n * MAKE_SECONDS


@each_way
def test_memory(recorded: Recorded, way: str) -> None:
    """The last samples are before the end, below the limits that the test set."""
    memory = post_mortem(recorded.run, recorded.pids[way]).memory
    assert memory.limit_bytes == MEMORY_LIMIT
    assert memory.thresholds == {"spill": 0.7, "pause": 0.85, "terminate": 0.9}
    assert memory.samples
    assert [s.time for s in memory.samples] == sorted(s.time for s in memory.samples)
    assert all(20_000_000 < (s.rss_bytes or 0) < 2 * MEMORY_LIMIT for s in memory.samples)


@pytest.mark.release
@each_way
def test_the_screen(recorded: Recorded, strata: Strata, way: str) -> None:
    """One screen names the cause, the act, the task, lost results and their cost."""
    pid = recorded.pids[way]
    done = strata("why", recorded.run.path, pid, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN, done.stdout
    words = " ".join(done.stdout.split())
    assert f"pid {pid} " in words
    assert f"how {WAYS[way][3]}" in words
    assert f"{way}-task ran for" in words
    assert all(key in words for key in recorded.held[way])
    assert "had to be computed again for that: all were, in" in words
    acts = {
        "kill": "not the kernel's OOM killer, whose counter did not rise",
        "terminate": "the sender is not on record",
        "fault": "a fault in compiled code",
        "leave": "exited with status 7 without closing (os._exit",
        "hoard": f"of {size(MEMORY_LIMIT)} were in use",
    }
    assert acts[way] in words


def test_the_traceback_of_a_fault(recorded: Recorded, strata: Strata) -> None:
    """The lines that `faulthandler` wrote: C was called by the task's function, at its line."""
    logs = post_mortem(recorded.run, recorded.pids["fault"]).logs
    assert logs is not None
    assert logs.fault == "Fatal Python error: Segmentation fault"
    line = inspect.getsourcelines(fault)[1] + len(inspect.getsourcelines(fault)[0]) - 1
    assert "ctypes" in logs.frames[0]
    assert logs.frames[0].endswith(" in string_at")
    assert logs.frames[1] == f"{ways.__file__}:{line} in fault"
    shown = strata("why", recorded.run.path, recorded.pids["fault"], check=True).stdout
    assert f"{ways.__file__}:{line} in fault" in shown


@pytest.mark.parametrize("way", ["kill", "terminate", "hoard"])
def test_the_last_lines(recorded: Recorded, way: str) -> None:
    """They are the worker's own, before its end, in time order; the task printed the last one."""
    logs = post_mortem(recorded.run, recorded.pids[way]).logs
    assert logs is not None
    assert [line.time for line in logs.last] == sorted(line.time for line in logs.last)
    printed = [line.message for line in logs.last if line.stream == "stdout"]
    assert printed == [f"{way} begins"]


def test_all_ends_and_names(recorded: Recorded, strata: Strata) -> None:
    """Without a worker: the first end in full, and the others in a line each; and clear errors."""
    done = strata("why", recorded.run.path, check=True).stdout
    assert done.startswith(f"{len(WAYS)} workers ended unexpectedly\n")
    assert len(done.splitlines()) <= SCREEN
    for pid in list(recorded.pids.values())[1:]:
        assert f", pid {pid}: " in done
    found = why(recorded.run)
    assert [end.pid for end in found.ends] == list(recorded.pids.values())
    assert [each.end.pid for each in found.post_mortems] == [recorded.pids["kill"]]
    first = found.ends[0]
    for name in (first.worker, first.process, str(first.pid)):
        assert [end.pid for end in why(recorded.run, name).ends] == [first.pid]
    assert str(recorded.run.why(first.pid)).startswith(f"worker {first.pid} ended")
    read = json.loads(strata("why", recorded.run.path, "--format", "json", check=True).stdout)
    assert [end["pid"] for end in read["ends"]] == list(recorded.pids.values())
    refused = strata("why", recorded.run.path, "nobody")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "Error: No worker nobody ended in this run.",
        f"Workers that ended: {', '.join(dict.fromkeys(e.label for e in found.ends))}",
    ]


def test_the_insight(recorded: Recorded) -> None:
    """It counts the ends, and its command is this one."""
    [insight] = [i for i in summarize(recorded.run).insights if i.cause == "killed-worker"]
    assert insight.text.startswith(f"{len(WAYS)} workers ended unexpectedly: ")
    assert insight.command == "why RUN"


def in_a_full_group(deployment: Deployment, limit: int) -> tuple[Run, int, int, str]:
    """Return the run of a worker whose control group is too small, and what the test saw."""
    deployment.environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "0"
    deployment.environment["PYTHONPATH"] = os.pathsep.join(map(str, _PATHS))
    deployment.scheduler(*PRELOAD)
    with limited_group(limit) as group:
        nanny = deployment.worker(
            *("--nanny", "--memory-limit", "8GB", "--name", "big"), before=group.command
        )
        with deployment.client() as client:
            client.wait_for_workers(1)
            assert client.submit(int, 1).result() == 1
            task = client.submit(hoard, deployment.folder, "hoard", key="hoard-1")
            assert "KilledWorker" in repr(task.exception(timeout=120))
            kills = group.oom_kills
            client.wait_for_workers(1, timeout=60)  # the nanny lives on
        deployment.end(nanny)
        run = deployment.run()
    return run, noted(deployment.folder, "hoard")[0], kills, f"/{group.folder.name}"


def test_the_kernels_oom_killer(deployment: Deployment, strata: Strata) -> None:
    """A full control group: the kernel's counter is the evidence, and the insight names it."""
    limit = 700_000_000
    run, pid, kills, path = in_a_full_group(deployment, limit)
    assert kills == 1  # as the test itself read it
    found = post_mortem(run, pid)
    assert (found.end.cause, found.end.signal) == ("oom killer", "SIGKILL")
    assert f"oom_kill of control group {path} rose from 0 to 1" in (found.end.evidence or "")
    assert found.attempts.first[0].key == "hoard-1"
    assert found.memory.group_limit_bytes == pytest.approx(limit, abs=8192)
    words = " ".join(strata("why", run.path, "big", check=True).stdout.split())
    assert "how was killed by the kernel's OOM killer" in words
    assert "rose from 0 to 1" in words
    assert f"control group {size(found.memory.group_limit_bytes)}" in words
    [insight] = [i for i in summarize(run).insights if i.cause == "killed-worker"]
    assert "1 was killed by the kernel's OOM killer" in insight.text
    assert insight.command == "why RUN big"
    assert "memory_limit below what the control group" in (insight.advice or "")


def test_a_nanny_that_is_killed(deployment: Deployment, strata: Strata) -> None:
    """Its worker ends itself, nobody records how: the answer names the nanny, and no signal."""
    deployment.environment["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "0"
    deployment.environment["PYTHONPATH"] = os.pathsep.join(map(str, _PATHS))
    deployment.scheduler(*PRELOAD)
    nanny = deployment.worker("--nanny", "--name", "orphan")
    with deployment.client() as client:
        client.wait_for_workers(1)
        task = client.submit(hold, deployment.folder, "hold", key="hold-1")
        wait_until(lambda: noted(deployment.folder, "hold"), what="the task to begin")
        nanny.kill()
        assert "KilledWorker" in repr(task.exception(timeout=120))

        def named() -> bool:
            [run] = runs_in(deployment.runs)
            return [end.cause for end in why(run).ends] == ["nanny lost"]

        wait_until(named, what="the scheduler to outlive both")
    run = deployment.run()
    pid = noted(deployment.folder, "hold")[0]
    end = post_mortem(run, pid).end
    assert (end.cause, end.nanny_pid, end.ended) == ("nanny lost", nanny.pid, "unexpected")
    assert end.signal is None is end.exit_status
    words = " ".join(strata("why", run.path, check=True).stdout.split())
    assert f"whoever killed the nanny (pid {nanny.pid})" in words
    assert "hold-1 ran for" in words
