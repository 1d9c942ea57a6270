"""Users' scripts for deployments: each counts Dask's transitions with a plugin of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run
from tests.conftest import rows, runs_in, wait_until

#: The command `dask-strata` of this Python.
STRATA = Path(sys.executable).with_name("dask-strata")

#: The beginning of each script: `work` computes, and writes its result and the counts of a plugin
#: of the scheduler, which is pickled by value, so that no process needs this file.
_WORK = """
    import json, sys, time
    from collections import Counter

    from distributed import Client
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Counting(SchedulerPlugin):
        name = "counting"

        def __init__(self):
            self.counts = Counter()

        def transition(self, key, start, finish, *args, **kwargs):
            self.counts[f"{start} {finish}"] += 1

    def double(x):
        time.sleep(0.02)
        return 2 * x

    def fail(x):
        raise ValueError("on purpose")

    def counts(dask_scheduler):
        return dict(dask_scheduler.plugins["counting"].counts)

    def n_tasks(dask_scheduler):
        return len(dask_scheduler.tasks)

    def note_counts(client, result, **more):
        while client.run_on_scheduler(n_tasks):
            time.sleep(0.02)
        found = {"counts": client.run_on_scheduler(counts), "result": result, **more}
        with open("result.json", "w") as file:
            json.dump(found, file)

    def work(client, n_workers=2):
        client.register_plugin(Counting())
        client.wait_for_workers(n_workers, timeout=60)
        doubled = client.map(double, range(40))
        total = client.submit(sum, doubled).result()
        failed = client.submit(fail, 1)
        assert "on purpose" in str(failed.exception())
        del doubled, failed
        note_counts(client, total)
"""

_TRANSITIONS = """
    select start_state || ' ' || finish_state as pair, count(*) as n
    from scheduler_transitions group by pair
"""


@dataclass
class Workplace:
    """An empty working directory, temporary directory and folder of runs for one script.

    Attributes
    ----------
    folder : Path
        The working directory; runs are in its subfolder ``runs``.
    environment : dict
        Environment variables. One of them marks all processes that the script starts.
    """

    folder: Path
    environment: dict[str, str]
    mark: str = field(default_factory=lambda: f"STRATA_TEST_MARK={uuid.uuid4().hex}")

    def __post_init__(self) -> None:
        (self.folder / "tmp").mkdir(parents=True)
        name, _, value = self.mark.partition("=")
        self.environment = {
            **{k: v for k, v in self.environment.items() if not k.startswith("DASK_")},
            "DASK_TEMPORARY_DIRECTORY": str(self.folder / "dask"),
            "TMPDIR": str(self.folder / "tmp"),
            name: value,
        }

    @property
    def runs(self) -> Path:
        """Folder of runs."""
        return self.folder / "runs"

    def script(self, text: str, name: str = "pipeline.py") -> Path:
        """Write a script, after the functions that every script has; return its path."""
        path = self.folder / name
        path.write_text(textwrap.dedent(_WORK) + textwrap.dedent(text), encoding="utf-8")
        return path

    def command(
        self, *command: Any, seconds: float = 120, status: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end, and check its exit status."""
        done = subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode != status:
            pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def record(self, script: Path, *arguments: Any, **more: Any) -> str:
        """Record a script, and return what it and dask-strata wrote on standard error."""
        return self.command(STRATA, "record", "-q", script.name, *arguments, **more).stderr

    @property
    def result(self) -> dict[str, Any]:
        """What the script wrote."""
        return dict(json.loads((self.folder / "result.json").read_text(encoding="utf-8")))

    def run(self) -> Run:
        """Return the one run."""
        found = runs_in(self.runs)
        assert len(found) == 1, found
        return found[0]

    def processes(self) -> list[int]:
        """Return the ids of the processes that the script started and that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill(self) -> None:
        """Kill the processes that still run."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def assert_recorded(self, name: str | None = "pipeline", *, result: int = 1560) -> Run:
        """Wait for the end of all processes, and assert that the one run is exact and whole.

        The run has the script's name, and the counts of the script's own plugin of the scheduler.
        """
        wait_until(lambda: not self.processes(), what=f"the end of {self.processes()}")
        run = self.run()
        assert name in (run.manifest.name, None)
        assert self.result["result"] == result
        assert {r["pair"]: r["n"] for r in rows(run, _TRANSITIONS)} == self.result["counts"]
        self.assert_check(run)
        return run

    def assert_check(self, run: Run, status: int = 0) -> str:
        """Assert the exit status of `dask-strata check`, and return its output."""
        return self.command(STRATA, "check", "-v", run.path, status=status).stdout

    def assert_nothing_left(self) -> None:
        """Assert that no process runs, and that no file outside the runs is dask-strata's."""
        assert self.processes() == []
        left = [p for p in self.folder.rglob("*strata*") if self.runs not in p.parents]
        assert left == []


#: Makes a workplace, with an environment other than this process's if one is given.
MakeWorkplace = Callable[..., Workplace]
