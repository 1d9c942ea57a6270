"""Recording executions changes nothing for the user, and its hooks can be removed completely."""

# Tasks open files with open(), as users do.
# ruff: noqa: PTH119, PTH123

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import assert_whole, rows, wait_until
from tests.recorder.sources.measured_tasks import (
    MEASURES,
    attempts,
    forgotten,
    meet,
    needs_accounting,
    nothing,
    write_and_wait,
    write_pieces,
)
from tests.support.processes import terminate

pytestmark = needs_accounting

ROOT = Path(__file__).parents[3]


def state() -> dict[str, Any]:
    """Return everything in this process that the recording of executions changes."""
    import distributed.worker as module

    from dask_strata.recorder.sources import executions

    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            names.append(os.path.basename(entry.readlink()))
    functions = ("_run_task", "_run_task_async", "_run_actor", "thread_time")
    return {
        "functions": [id(getattr(module, name)) for name in functions],
        "wrapped": [
            getattr(getattr(module, name), "__code__", None) is not None
            and getattr(module, name).__code__.co_filename == executions.__file__
            for name in functions
        ],
        "files": sorted(name for name in names if name in ("io", "statm", "status")),
        "queues": len(executions._queues),
        "current": executions.current_execution.get(),
    }


HOOKS: list[str] = []


def count_hooks() -> int:
    """Begin to count added audit hooks; from the second call on, return their number."""
    if not HOOKS:
        HOOKS.append("the counting hook")
        sys.addaudithook(lambda event, _: HOOKS.append(event) if "addaudit" in event else None)
    return HOOKS.count("sys.addaudithook")


def meet_alone() -> None:
    """Do nothing."""


def test_dask_is_as_it_was(two_threads: Client, runs: Path) -> None:
    """After a recording Dask has its own functions, and the recorder's files are closed."""
    look = state
    ((before),) = two_threads.run(look).values()
    assert before["wrapped"] == [False] * 4
    assert before["files"] == []
    with dask_strata.record(runs, client=two_threads) as run:
        two_threads.gather([two_threads.submit(meet, i, pure=False) for i in range(2)])
        (during,) = two_threads.run(look).values()
    assert during["wrapped"] == [True] * 4
    # Each thread has its own ``io`` and the process's.
    assert [during["files"].count(name) for name in ("io", "statm")] == [4, 2]
    assert two_threads.run(look) == {next(iter(two_threads.run(look))): before}
    assert two_threads.submit(look, pure=False).result() == before
    # The audit hook stays, but a second recording adds no second one.
    two_threads.run(count_hooks)
    with dask_strata.record(runs, client=two_threads) as second:
        two_threads.submit(meet_alone, key="in-second").result()
    assert set(two_threads.run(count_hooks).values()) == {0}
    assert rows(run, "select count(*) as n from executions") == [{"n": 2}]
    assert {r["key"] for r in rows(second, "select key from executions")} == {"in-second"}


def test_an_execution_that_outlasts_the_recording(
    two_threads: Client, runs: Path, tmp_path: Path
) -> None:
    """An execution that ends after the recording closes the recorder's files at its end."""
    with dask_strata.record(runs, client=two_threads) as run:
        task = two_threads.submit(write_and_wait, str(tmp_path), key="outlasts")
        wait_until((tmp_path / "started").exists, what="the task to start")
        (during,) = two_threads.run(state).values()
    (tmp_path / "go").touch()
    assert during["files"]
    task.result()
    (after,) = two_threads.run(state).values()
    assert after["files"] == []
    assert after["wrapped"] == [False] * 4
    (found,) = attempts(run, "outlasts")
    assert found["outcome"] == "running"
    assert [found[name] for name in MEASURES] == [None] * len(MEASURES)


def test_attempts_can_be_switched_off(client: Client, runs: Path, tmp_path: Path) -> None:
    """Without `attempts` Dask's functions stay in place, and executions are not measured."""
    (before,) = client.run(state).values()
    with dask_strata.record(runs, client=client, attempts=False) as run:
        client.submit(write_pieces, str(tmp_path / "new"), 5, key="writes").result()
        (during,) = client.run(state).values()
    assert during == before
    assert len(run.executions) == len(run.file_opens) == 0
    (found,) = attempts(run, "writes")
    assert found["outcome"] == "memory"
    assert [found[name] for name in ("kind", *MEASURES)] == [None] * (1 + len(MEASURES))
    assert_whole(run)


def outcome_of(dask_worker: Any, key: str) -> dict[str, Any]:
    """Return the bytes of a task's result or exception and traceback on the worker."""
    task = dask_worker.state.tasks[key]
    found = {name: pickle.dumps(getattr(task, name)) for name in ("exception", "traceback")}
    found |= {name: getattr(task, name) for name in ("exception_text", "traceback_text")}
    if key in dask_worker.data:
        found["result"] = pickle.dumps(dask_worker.data[key])
    return found


def deep() -> None:
    """Fail with a cause and a context."""
    try:
        json.loads("{")
    except ValueError as error:
        raise KeyError("no key", b"\xff", {"a": 1}) from error


def compute(path: str) -> dict[str, Any]:
    """Return a result of many types."""
    with open(path, "rb") as file:
        data = file.read()
    return {"hash": hashlib.sha256(data).digest(), "array": np.frombuffer(data, "uint8"), "f": deep}


async def compute_slowly(path: str) -> dict[str, Any]:
    """Return the same from a coroutine."""
    await asyncio.sleep(0)
    return compute(path)


async def deep_slowly() -> None:
    """Fail the same in a coroutine."""
    await asyncio.sleep(0)
    deep()


def test_outcomes_are_the_same_bytes(client: Client, runs: Path, tmp_path: Path) -> None:
    """Results, exceptions and tracebacks are byte for byte those without a recording."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)))
    work: dict[str, tuple[Any, ...]] = {
        "result": (compute, str(path)),
        "result-slowly": (compute_slowly, str(path)),
        "error": (deep,),
        "error-slowly": (deep_slowly,),
    }

    def outcomes() -> dict[str, Any]:
        tasks = {key: client.submit(*call, key=key) for key, call in work.items()}
        errors = {key: repr(task.exception()) for key, task in tasks.items()}
        found = {key: client.run(outcome_of, key=key) for key in work}
        del tasks
        for key in work:
            forgotten(client, key)
        return {"errors": errors, **found}

    without = outcomes()
    with dask_strata.record(runs, client=client) as run:
        recorded = outcomes()
    assert recorded == without
    assert without["errors"]["error"].startswith("KeyError")
    assert "deep" in next(iter(without["error"].values()))["traceback_text"]
    assert {r["key"] for r in rows(run, "select key from executions")} == set(work)
    assert_whole(run)


#: Runs a command in a mount namespace where /proc has no accounting of threads.
HIDING = """
mount --make-rprivate / && mkdir -p "$1/proc" && mount --rbind /proc "$1/proc" &&
mount -t tmpfs none /proc && for name in stat meminfo cpuinfo uptime mounts filesystems sys net; do
    ln -s "$1/proc/$name" "/proc/$name"
done && ln -s "$1/proc/$$" "/proc/$$" && ln -s "$$" /proc/self || exit 77
shift && exec "$@"
"""


def test_a_kernel_without_accounting_of_threads(runs: Path, tmp_path: Path) -> None:
    """Without accounting of threads bytes are null and `check` reports it; CPU is recorded."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare")
    hiding = [unshare, "-Urm", "/bin/sh", "-c", HIDING, "sh", str(tmp_path)]
    done = subprocess.run([*hiding, "test", "!", "-e", "/proc/thread-self/io"], check=False)
    if done.returncode:
        pytest.skip("needs to be allowed to hide /proc")
    worker = ["-m", "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1"]
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        address = cluster.scheduler_address
        command = [*hiding, sys.executable, *worker, "--no-dashboard", address]
        python_path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": python_path},
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(1, timeout=60)
            with dask_strata.record(runs, client=client) as run:
                client.submit(write_pieces, str(tmp_path / "new"), 5, key="writes").result()
                client.submit(nothing, key="rests").result()
        finally:
            terminate(process)
    (found,) = attempts(run, "writes")
    assert [found[name] for name in MEASURES[1:7]] == [None] * 6
    assert found["cpu_seconds"] is not None
    assert found["minor_faults"] is not None
    assert found["rss_after_bytes"] is not None
    notes = [f.text for f in run.check().findings if f.severity == "note"]
    assert [text for text in notes if text.startswith("2 of 2 executions")], notes
    assert run.check().ok
