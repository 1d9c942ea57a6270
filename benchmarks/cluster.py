"""One benchmark run in a fresh cluster: scheduler, workers and client, each its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = 2
HERE = Path(__file__).parent


class RunError(RuntimeError):
    """A process of a benchmark failed."""


def environment(runs: Path | None, settings: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of a cluster; with a folder of runs it is recorded."""
    preloads = ("DASK_DISTRIBUTED__SCHEDULER__PRELOAD", "DASK_DISTRIBUTED__CLIENT__PRELOAD")
    env = {k: v for k, v in os.environ.items() if k not in preloads}
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # One piece per message, so that the rechunk makes thousands of transfers and not a few.
    env["DASK_DISTRIBUTED__WORKER__TRANSFER__MESSAGE_BYTES_LIMIT"] = "1 kiB"
    if runs is not None:
        env |= dict.fromkeys(preloads, '["dask_strata"]') | {"DASK_DASK_STRATA__RUNS": str(runs)}
        env |= {f"DASK_DASK_STRATA__{name.upper()}": value for name, value in settings.items()}
    return env


@contextmanager
def process(name: str, arguments: list[str], env: dict[str, str], folder: Path) -> Iterator[int]:
    """Run a Python module in a process for the duration of the block; yield its pid."""
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", *arguments], env=env, cwd=folder, stdout=log, stderr=log
        )
    try:
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(file: Path, seconds: float = 60) -> str:
    """Wait for the scheduler's file, and return its address."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text(encoding="utf-8")).endswith("}"):
            return json.loads(text)["address"]
        time.sleep(0.02)
    raise RunError(f"the scheduler did not start: see {file.parent}")


def run_client(command: list[str], env: dict[str, str], folder: Path) -> dict:
    """Run the client and return its measurements."""
    done = subprocess.run(
        [sys.executable, str(HERE / "workloads.py"), *command],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    (folder / "client.log").write_text(done.stderr, encoding="utf-8")
    if done.returncode:
        raise RunError(f"the client failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_once(workload: str, size: str, runs: Path | None, **settings: str) -> dict:
    """Run one workload once, in a fresh cluster; with a folder of runs it is recorded."""
    env = environment(runs, settings)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strata-bench-")))
        file = folder / "scheduler.json"
        common = ["--scheduler-file", str(file), "--no-dashboard"]
        started = time.time()
        scheduler = ["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
        stack.enter_context(process("scheduler", [*scheduler, *common], env, folder))
        worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--memory-limit", "2GB"]
        worker += ["--local-directory", str(folder)]
        nannies = [
            stack.enter_context(process(f"worker-{n}", [*worker, *common], env, folder))
            for n in range(WORKERS)
        ]
        found = run_client(
            [
                wait_for(file),
                "--workload",
                workload,
                "--size",
                size,
                "--workers",
                str(WORKERS),
                "--started",
                repr(started),
                "--nannies",
                *map(str, nannies),
            ],
            env,
            folder,
        )
        found["log"] = warnings_in(folder)
    return found | {"workload": workload, "recorded": runs is not None}


def warnings_in(folder: Path) -> list[str]:
    """Return the warnings of dask-strata in the logs; there should be none."""
    return [
        line
        for log in sorted(folder.glob("*.log"))
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if ("dask-strata" in line or "dask_strata" in line) and " - INFO - " not in line
    ]
