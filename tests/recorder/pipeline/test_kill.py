"""After SIGKILL at any moment the run opens, reports losses, and has all older rows."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from dask_strata import Run, open_run
from dask_strata.analysis.check import WHOLE
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.processes import terminate

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

#: The documentation guarantees all rows that are older than this when a process dies.
GUARANTEED_SECONDS = 1.0

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
    "DASK_DASK_STRATA__SAMPLE_INTERVAL": "'200ms'",
}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes, and end them after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: Any, **kwargs: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            **kwargs,
        )
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        terminate(process)


class Cluster:
    """A scheduler and workers in separate processes, recorded by the preload."""

    def __init__(self, start: Callable[..., subprocess.Popen[str]], folder: Path) -> None:
        self.runs = folder / "runs"
        file = folder / "scheduler.json"
        os.environ.pop("DASK_DASK_STRATA__RUNS", None)
        self.scheduler = start(
            "-m", "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1",
            "--no-dashboard", "--scheduler-file", file, "--preload", "dask_strata",
            cwd=folder,
        )  # fmt: skip
        self.workers = [
            start(
                "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--no-nanny",
                "--nthreads", "1", "--no-dashboard", "--name", name,
                cwd=folder,
            )
            for name in ("w0", "w1")
        ]  # fmt: skip
        self.file = file

    def client(self) -> Client:
        wait_until(self.file.exists, what="the scheduler's file")
        client = Client(scheduler_file=str(self.file), set_as_default=False)
        client.wait_for_workers(2, timeout=60)
        return client

    @property
    def run(self) -> Run:
        [run] = runs_in(self.runs)
        return run


@pytest.fixture
def outside(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> Cluster:
    """A cluster outside this process."""
    return Cluster(start, tmp_path)


def load(client: Client, done: dict[str, float], n: int = 2_000) -> list[Any]:
    """Submit many short tasks, half of them with dependencies; note the time of each result."""
    first = client.map(time.sleep, [0.002] * n, key=[f"first-{i}" for i in range(n)])
    second = client.map(type, first, key=[f"second-{i}" for i in range(n)])
    for future in [*first, *second]:
        future.add_done_callback(
            lambda f: done.setdefault(f.key, time.time()) if f.status == "finished" else None
        )
    return [*first, *second]


def at_a_random_moment(seed: int, done: dict[str, float]) -> None:
    """Wait until some results are older than a loss can be, and a random number of others."""
    more = random.Random(seed).randrange(300, 1_200)

    def enough() -> bool:
        notified = list(done.values())
        return len(notified) > more and min(notified) < time.time() - 2 * GUARANTEED_SECONDS

    wait_until(enough, what="work")


def assert_cut(run: Run, *processes: str) -> None:
    """Assert that `check` reports each process as incomplete, with a time."""
    check = run.check()
    assert check.grade != WHOLE
    for process in processes:
        texts = [f.text for f in check.incomplete if f.process == process]
        assert any("was killed after" in text and "UTC" in text for text in texts), check.findings


def assert_counted_rows_are_there(run: Run) -> None:
    """Assert that each process has at least as many rows as its last recorded count."""
    for table, name in (
        ("scheduler_transitions", "scheduler.transitions"),
        ("worker_transitions", "worker.transitions"),
    ):
        for row in run.rows(
            f"""
            with last as (
                select process, arg_max(value, seq) as value, arg_max(recorded, seq) as recorded
                from counters where name = '{name}' group by process
            ), found as (select process, count(*) as n from {table} group by process)
            select process, value, recorded, n from last left join found using (process)
            """
        ):
            assert row["n"] >= row["recorded"] > 0
            assert row["recorded"] <= row["value"] or row["n"] >= row["value"]
    assert not any(segment.damages or segment.lost_rows for segment in run.segments)


def process_of(run: Run, name: str) -> dict[str, Any]:
    [found] = run.rows("select * from processes where role = 'worker' and name = ?", name)
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.release)])
def test_worker_is_killed(outside: Cluster, seed: int) -> None:
    """A killed worker wrote all tasks that the scheduler had finished a second before."""
    done: dict[str, float] = {}
    with outside.client() as client:
        futures = load(client, done)
        at_a_random_moment(seed, done)
        killed = time.time()
        outside.workers[0].kill()
        outside.workers[0].wait()
        client.gather(futures)  # Dask computes lost results again
        wait_until(
            lambda: rows(outside.run, "from worker_events where action = 'remove'"),
            what="the recorded end of the worker",
        )
        run = outside.run
        assert run.state == "recording"
        dead = process_of(run, "w0")
        client.shutdown()
    outside.scheduler.wait(timeout=30)
    outside.workers[1].wait(timeout=30)
    run = outside.run
    assert run.state == "complete"
    assert_cut(run, dead["process"])
    assert {f.process for f in run.check().incomplete} == {dead["process"]}, run.check().findings
    assert_counted_rows_are_there(run)
    known = run.rows(
        """
        select key from scheduler_transitions where finish_state = 'memory'
          and start_state = 'processing' and worker = ? and epoch_ns(time) < ?
        """,
        dead["address"],
        int((killed - GUARANTEED_SECONDS) * 1e9),
    )
    written = run.rows(
        "select key from worker_transitions where process = ? and start_state = 'executing' "
        "and finish_state = 'memory'",
        dead["process"],
    )
    assert known
    assert {r["key"] for r in known} <= {r["key"] for r in written}
    [left] = run.rows("select * from workers where worker = ?", dead["address"])
    assert left["end_reason"].startswith("unexpected")
    [finished] = run.rows(
        "select count(distinct key) as n from scheduler_transitions where finish_state = 'memory'"
    )
    assert finished["n"] == len(futures)


def test_scheduler_is_killed(outside: Cluster) -> None:
    """The run is cut, and has all tasks that the client had received a second before."""
    done: dict[str, float] = {}
    client = outside.client()
    try:
        load(client, done)
        at_a_random_moment(3, done)
        killed = time.time()
        outside.scheduler.kill()
        outside.scheduler.wait()
        notified = {key for key, when in list(done.items()) if when < killed - GUARANTEED_SECONDS}
    finally:
        with contextlib.suppress(TimeoutError):
            client.close(timeout=1)
    run = outside.run
    assert run.state == "cut"
    [scheduler] = run.rows("select process from processes where role = 'scheduler'")
    assert_cut(run, scheduler["process"])
    assert_counted_rows_are_there(run)
    finished = run.rows("select key from scheduler_transitions where finish_state = 'memory'")
    assert notified
    assert notified <= {r["key"] for r in finished}
    # A large graph is described in parts: `check` counts the tasks without a description.
    (tasks,) = run.rows("select count(*) as n from graph_tasks where requested")
    reported = [f.text for f in run.check().missing if "are not described" in f.text]
    if tasks["n"] < 4_000:
        assert reported[0].startswith(f"{4_000 - tasks['n']:,} of 4,000 submitted tasks")
    else:
        assert (tasks["n"], reported) == (4_000, [])
    for worker in outside.workers:
        worker.terminate()
        worker.wait(timeout=30)


GROUP = """
import sys, time
from distributed import Client, LocalCluster, as_completed

def work(i):
    time.sleep(0.1)
    return i

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            with open(sys.argv[1], "w", buffering=1) as file:
                futures = client.map(work, range(6_000), key=[f"w-{i}" for i in range(6_000)])
                for future in as_completed(futures):
                    file.write(f"{future.key} {time.time()}\\n")
"""


def test_whole_group_is_killed(
    start: Callable[..., subprocess.Popen[str]],
    script: Callable[..., Path],
    strata: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """If all processes die at once, each has recorded all events up to a second before.

    All commands read this run, during the recording and after the kill.
    """
    log, runs = tmp_path / "done", tmp_path / "runs"
    process = start(
        "-m", "dask_strata", "record", "-o", runs, script(GROUP), log, start_new_session=True
    )
    wait_until(lambda: log.exists() and log.read_text().count("\n") > 100, what="work")
    [path] = [run.path for run in runs_in(runs)]
    read_with_every_command(strata, runs, path, "recording")
    more = random.Random(4).randrange(0, 200)
    before = log.read_text().count("\n")
    wait_until(lambda: log.read_text().count("\n") > before + more, what="more work")
    pids = [p["pid"] for p in open_run(path).rows("select distinct pid from processes")]
    killed = time.time()
    for pid in {os.getpgid(pid) for pid in pids} | {process.pid}:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}/fd").exists() and alive(pid) for pid in pids))
    run = open_run(path)
    assert run.state == "cut"
    assert_cut(run, *(p["process"] for p in run.rows("select process from processes")))
    assert_counted_rows_are_there(run)
    notified = {
        key
        for key, when in (line.split() for line in log.read_text().splitlines() if " " in line)
        if float(when) < killed - GUARANTEED_SECONDS
    }
    assert notified
    finished = run.rows("select key from scheduler_transitions where finish_state = 'memory'")
    assert notified <= {r["key"] for r in finished}
    executed = run.rows(
        "select key from worker_transitions where start_state = 'executing' "
        "and finish_state = 'memory'"
    )
    assert notified <= {r["key"] for r in executed}
    read_with_every_command(strata, runs, path, "cut")


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] != ["Z"]


@pytest.mark.release
def test_complete_run_is_read(
    script: Callable[..., Path],
    strata: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """Every command reads a complete run, compacted or not."""
    text = GROUP.replace("6_000", "50")
    for compact in ([], ["--no-compact"]):
        runs = tmp_path / f"runs{len(compact)}"
        command = ["record", "-q", *compact, "-o", runs, script(text), tmp_path / "done"]
        assert strata(*command).returncode == 0
        [run] = runs_in(runs)
        assert_whole(run)
        read_with_every_command(strata, runs, run.path, "complete")


def read_with_every_command(
    strata: Callable[..., subprocess.CompletedProcess[str]], runs: Path, run: Path, state: str
) -> None:
    """Assert that each command reads a run in this state."""
    listed = strata("list", runs, "--format", "json", check=True)
    [row] = json.loads(listed.stdout)
    assert row["state"] == state
    assert row["tasks"] > 0
    shown = strata("show", run, check=True).stdout
    assert state in shown
    cells = json.loads(strata("map", run, "--format", "json", check=True).stdout)
    assert len(cells) == 9
    assert all(cell["total"] > 0 for cell in cells if not cell["by_choice"])
    tasks = json.loads(strata("tasks", run, "--format", "json", check=True).stdout)
    assert "w-0" in {task["key"] for task in tasks}
    story = json.loads(strata("story", run, "w-0", "--format", "json", check=True).stdout)
    assert {"scheduler", "worker"} <= {event["layer"] for event in story["events"]}
    query = "select count(*) as n from scheduler_transitions"
    found = json.loads(strata("query", run, query, "--format", "json", check=True).stdout)
    assert found[0]["n"] > 0
    check = strata("check", run, "--format", "json")
    findings = json.loads(check.stdout)
    assert findings["ok"] is (state != "cut"), check.stdout
    assert check.returncode == (1 if state == "cut" else 0), check.stdout
    if state == "recording":
        assert any("still being recorded" in f["text"] for f in findings["findings"])
