"""A scheduler and workers in separate processes, as on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from distributed.core import rpc

import dask_strata
from dask_strata import Run
from tests.conftest import runs_in, wait_until
from tests.support.processes import ends

#: The command `dask` of this Python.
DASK = Path(sys.executable).with_name("dask")
#: Options of a recorded scheduler or worker.
PRELOAD = ("--preload", "dask_strata")

Process = subprocess.Popen[bytes]


class Deployment:
    """A scheduler and workers in separate processes, whose output goes to files in one folder."""

    def __init__(self, folder: Path, runs: Path) -> None:
        self.folder, self.runs = folder, runs
        self.file = folder / "scheduler.json"
        self.environment: dict[str, str] = {
            "DASK_DASK_STRATA__RUNS": str(runs),
            "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "false",
        }
        self.processes: list[Process] = []

    def start(self, *command: Any) -> Process:
        """Start a process."""
        with (self.folder / f"process-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*map(str, command)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        self.processes.append(process)
        return process

    def scheduler(self, *arguments: Any, before: tuple[Any, ...] = ()) -> Process:
        """Start the scheduler, and wait until it accepts connections."""
        at = ("--port", 0, "--scheduler-file", self.file, "--dashboard-address", ":0")
        process = self.start(*before, DASK, "scheduler", *at, *arguments)
        wait_until(lambda: self.file.exists() and self.file.read_text(), what="the scheduler")
        return process

    def worker(self, *arguments: Any, before: tuple[Any, ...] = ()) -> Process:
        """Start a worker with one thread."""
        at = ("--scheduler-file", self.file, "--dashboard-address", ":0", "--nthreads", 1)
        local = self.folder / f"local-{len(self.processes)}"
        return self.start(*before, DASK, "worker", *at, "--local-directory", local, *arguments)

    def client(self) -> Client:
        """Return a client in this process, which has no preload."""
        return Client(scheduler_file=str(self.file), timeout=30)

    def end(self, process: Process) -> None:
        """Send a process the signal that batch systems send, and wait for its end.

        A worker without a nanny is terminated over its own connection instead: after a signal,
        Dask itself hangs now and then (1 of 90 times, with 2025.3 and without recording).
        """
        if process.poll() is None:
            if "--no-nanny" in process.args:
                asyncio.run(self._terminate(process))
            else:
                process.terminate()
            if not ends(process):
                pytest.fail(f"{process.args} did not end:\n{self.output()}")

    def ended_by_signal(self, worker: Process, seconds: float = 30) -> bool:
        """Wait for the end of a worker that got SIGTERM; return whether it ended by itself.

        Without a nanny it may hang in Dask (see `end`). It is then aborted, and no thread of it may
        be in the recorder: needs ``PYTHONFAULTHANDLER`` in its environment.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(seconds)
            return True
        worker.send_signal(signal.SIGABRT)
        worker.wait(30)
        stacks = self._log(worker).read_text(errors="replace").rpartition("Fatal Python error")[2]
        assert "File " in stacks, self.output()
        assert str(Path(dask_strata.__file__).parent) not in stacks, stacks
        return False

    def _log(self, process: Process) -> Path:
        return self.folder / f"process-{self.processes.index(process)}.log"

    async def _terminate(self, process: Process) -> None:
        log = self._log(process).read_text(errors="replace")
        address = re.search(r"Start worker at: +(\S+)", log)
        assert address is not None, self.output()
        async with rpc(address[1]) as worker:
            with contextlib.suppress(OSError):  # it may close before it replies
                await worker.terminate(reason="end of the test")

    def end_all(self) -> None:
        """End all processes, the scheduler last."""
        for process in reversed(self.processes):
            self.end(process)

    def kill(self) -> None:
        """Kill the processes that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(30)

    def output(self) -> str:
        """Return the output of all processes."""
        return "\n".join(p.read_text(errors="replace") for p in self.folder.glob("process-*.log"))

    def run(self) -> Run:
        """End all processes and return the one run that they recorded."""
        self.end_all()
        found = runs_in(self.runs)
        assert len(found) == 1, (found, self.output())
        return found[0]


def workers_of(client: Client) -> dict[str, str]:
    """Return the addresses of the connected workers by name."""
    return client.run_on_scheduler(
        lambda dask_scheduler: {ws.name: ws.address for ws in dask_scheduler.workers.values()}
    )
