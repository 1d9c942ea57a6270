"""The grades of `check`, against the truth: killed workers, and rows taken away by hand."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from distributed.diagnostics.plugin import WorkerPlugin

from dask_strata import Run, open_run
from dask_strata.analysis.check import MISSING, WHOLE, WHOLE_FOR_TASKS
from dask_strata.store.segments.frames import payloads
from tests.conftest import rows, wait_until
from tests.support.deployment import PRELOAD, Deployment

pytestmark = pytest.mark.long

N = 40
N_CUTS = 4
DONE = "select count(distinct key) as n from worker_transitions where finish_state = 'memory'"

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


def killed(deployment: Deployment, *, idle: bool) -> Run:
    """Return the run of a worker that was killed when idle, or before it wrote its rows."""
    if not idle:
        deployment.environment["DASK_DASK_STRATA__FLUSH_INTERVAL"] = "1h"
    deployment.scheduler(*PRELOAD)
    deployment.worker("--no-nanny")
    with deployment.client() as client:
        client.wait_for_workers(1)
        [pid] = client.run(os.getpid).values()
        futures = [client.submit(abs, i, key=f"abs-{i}") for i in range(N)]
        assert client.gather(futures) == list(range(N))
        if idle:
            [path] = [p for p in deployment.runs.iterdir() if not p.name.startswith(".")]
            wait_until(lambda: rows(open_run(path), DONE)[0]["n"] == N, what="the rows")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not client.nthreads(), what="the removal")
    deployment.processes[1].wait(30)
    return deployment.run()


def status(strata: Strata, run: Run, *options: str) -> int:
    """Return the exit status of ``dask-strata check``."""
    return strata("check", run.path, *options).returncode


def test_a_worker_killed_when_idle(deployment: Deployment, strata: Strata, tmp_path: Path) -> None:
    """Whole for every task; without its last frames exactly the tasks in them are missing."""
    run = killed(deployment, idle=True)
    check = run.check()
    assert (check.grade, check.ok) == (WHOLE_FOR_TASKS, True), check.missing
    [cut] = check.cut
    assert cut.process.startswith("worker-")
    assert f"its rows of {N} attempts that ended on it are on record" in cut.text
    assert (status(strata, run), status(strata, run, "--strict")) == (0, 1)
    assert json.loads(strata("check", run.path, "--format", "json").stdout)["grade"] == check.grade
    assert "every task complete" in strata("show", run.path).stdout
    segment = run.path / "segments" / f"{cut.process}.seg"
    data = segment.read_bytes()
    seen = set()
    ends = frame_ends(data)
    for end in (ends[2], ends[-1], *ends[3 : -1 : len(ends) // N_CUTS + 1]):
        copy = tmp_path / f"cut-at-{end}"
        shutil.copytree(run.path, copy)
        (copy / "segments" / segment.name).write_bytes(data[:end])
        shorter = open_run(copy)
        lost = N - rows(shorter, DONE)[0]["n"]
        found = shorter.check()
        assert found.grade == (MISSING if lost else WHOLE_FOR_TASKS), (lost, found.findings)
        if lost:
            text = f"its rows of {lost} of {N} attempts that ended on it are not on record"
            assert any(text in finding.text for finding in found.missing), found.missing
        seen.add(bool(lost))
    assert seen == {True, False}


def test_a_worker_killed_before_it_wrote(deployment: Deployment, strata: Strata) -> None:
    """What is missing, since when and how much."""
    run = killed(deployment, idle=False)
    check = run.check()
    assert check.grade == MISSING
    texts = [f.text for f in check.missing if f.process.startswith("worker-")]
    assert any(f"its rows of {N} of {N} attempts" in text for text in texts), check.missing
    assert status(strata, run) == 1


def test_a_whole_run(deployment: Deployment, strata: Strata) -> None:
    """Nothing is missing, strictly."""
    deployment.scheduler(*PRELOAD)
    deployment.worker("--nanny")
    with deployment.client() as client:
        client.wait_for_workers(1)
        client.submit(abs, -1).result()
        client.shutdown()
    deployment.processes[0].wait(30)
    run = deployment.run()
    assert run.check().grade == WHOLE, run.check().findings
    assert status(strata, run, "--strict") == 0


def test_a_worker_that_hangs_while_it_closes(deployment: Deployment, strata: Strata) -> None:
    """Its end is on record before it is killed."""

    class Hangs(WorkerPlugin):
        async def teardown(self, worker: Any) -> None:
            await asyncio.sleep(600)

    deployment.scheduler(*PRELOAD)
    deployment.worker("--no-nanny")
    with deployment.client() as client:
        client.wait_for_workers(1)
        client.register_plugin(Hangs())
        client.submit(abs, -1).result()
        [pid] = client.run(os.getpid).values()
        client.run(lambda dask_worker: dask_worker.loop.add_callback(dask_worker.close) and None)
        [path] = [p for p in deployment.runs.iterdir() if not p.name.startswith(".")]
        reason = f"select exit_reason from processes where pid = {pid}"
        wait_until(
            lambda: rows(open_run(path), reason) == [{"exit_reason": "closed"}], what="the end"
        )
        os.kill(pid, signal.SIGKILL)
        deployment.processes[1].wait(30)
        client.shutdown()
    deployment.processes[0].wait(30)
    run = deployment.run()
    assert run.check().grade == WHOLE, run.check().findings
    assert status(strata, run, "--strict") == 0


def frame_ends(data: bytes) -> list[int]:
    """Return the offset at which each frame of a segment ends."""
    file, found = BytesIO(data), []
    for payload in payloads(file):
        assert isinstance(payload, bytes)
        found.append(data.index(payload, found[-1] if found else 0) + len(payload))
    return found
