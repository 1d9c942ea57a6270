"""SIGTERM, which batch systems send to each process of a job: it ends its record, then itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dask_strata import Run
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.deployment import PRELOAD, Deployment
from tests.support.processes import ends

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.long

SIGTERM = "SIGTERM"


def reasons(run: Run) -> dict[str, set[str | None]]:
    """Return why the processes of a run ended, by role."""
    found: dict[str, set[str | None]] = {}
    for row in rows(run, "select role, exit_reason from processes"):
        found.setdefault(row["role"], set()).add(row["exit_reason"])
    return found


def children(client: Client) -> list[int]:
    """Return the process ids of the workers."""
    return list(client.run(os.getpid).values())


@pytest.mark.parametrize("kind", ["--nanny", "--no-nanny"])
def test_processes_of_a_job(deployment: Deployment, kind: str) -> None:
    """Workers and nannies that all get the signal end whole, and so does the scheduler."""
    deployment.environment["PYTHONFAULTHANDLER"] = "1"
    scheduler = deployment.scheduler(*PRELOAD)
    worker = deployment.worker(kind)
    with deployment.client() as client:
        client.wait_for_workers(1)
        assert client.gather(client.map(abs, range(50))) == list(range(50))
        [pid] = children(client)
        for process in {pid, worker.pid}:
            os.kill(process, signal.SIGTERM)
        ended = deployment.ended_by_signal(worker, 30 if kind == "--nanny" else 10)
        assert ended or kind == "--no-nanny"
        scheduler.terminate()
        assert ends(scheduler)
    assert (worker.returncode, scheduler.returncode) == (0 if ended else -signal.SIGABRT, 0)
    [run] = runs_in(deployment.runs)
    assert_whole(run)
    roles = {"scheduler", "worker", "nanny"} - ({"nanny"} if kind == "--no-nanny" else set())
    assert reasons(run) == {role: {SIGTERM} for role in roles}
    # The worker ended shortly before its scheduler, by the same signal: nothing was unexpected.
    [end] = rows(run, "select ended, signal from worker_ends")
    assert end == {"ended": "planned", "signal": SIGTERM}
    if kind == "--nanny":  # the exit status is the same as without a recorder
        [exited] = rows(run, "select reason from worker_events where action = 'process-exit'")
        assert exited["reason"] == f"pid {pid} was killed by SIGTERM"


def test_one_worker_while_the_cluster_goes_on(deployment: Deployment) -> None:
    """Nobody in Dask asked for its end: the cause is the signal, and its task is lost."""
    deployment.environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    deployment.scheduler(*PRELOAD)
    deployment.worker("--nanny")
    with deployment.client() as client:
        client.wait_for_workers(1)
        [pid] = children(client)
        task = client.submit(wait_for_file, deployment.folder / "go", key="waits")
        wait_until(lambda: client.processing() and any(client.processing().values()))
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the worker")
        (deployment.folder / "go").touch()
        assert task.result(timeout=60) is None  # on the worker's next process
    run = deployment.run()
    assert_whole(run)
    [end] = rows(run, f"select ended, cause, signal from worker_ends where pid = {pid}")
    assert end == {"ended": "unexpected", "cause": "signal", "signal": SIGTERM}


def wait_for_file(path: Path) -> None:
    """Wait until a file exists."""
    wait_until(path.exists)


SCRIPT = """
import signal, sys, time
from pathlib import Path
from distributed import Client, LocalCluster

if __name__ == "__main__":
    own = lambda signum, frame: sys.exit(7)
    if sys.argv[2] == "own":
        signal.signal(signal.SIGTERM, own)
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=sys.argv[1] == "nanny"
    ) as cluster, Client(cluster) as client:
        client.gather(client.map(abs, range(50)))
        assert (signal.getsignal(signal.SIGTERM) is own) == (sys.argv[2] == "own")
        Path("ready").touch()
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("workers", "handler", "status"),
    [("threads", "none", -signal.SIGTERM), ("nanny", "none", -signal.SIGTERM), ("nanny", "own", 7)],
)
def test_script(  # noqa: PLR0913, PLR0917  fixtures and parameters
    tmp_path: Path, runs: Path, script: Callable[..., Path], workers: str, handler: str, status: int
) -> None:
    """A script with a cluster of its own: whole, with its own handler and exit status."""
    process = subprocess.Popen(
        [sys.executable, script(SCRIPT), workers, handler],
        cwd=tmp_path,
        env={
            **os.environ,
            "DASK_DASK_STRATA__RUNS": str(runs),
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "dask_strata",
            "DASK_DISTRIBUTED__CLIENT__PRELOAD": "dask_strata",
        },
    )
    try:
        wait_until((tmp_path / "ready").exists, what="the script")
        process.terminate()
    finally:
        assert ends(process)
    assert process.returncode == status
    [run] = runs_in(runs)
    assert_whole(run)
    expected = {SIGTERM} if handler == "none" else {"closed"}
    assert reasons(run)["scheduler"] == expected


HANDLERS = """
import os, signal, time
import dask_strata
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            with dask_strata.record("runs", client=client):
                assert callable(signal.getsignal(signal.SIGTERM))
                fork = os.fork()
                if not fork:
                    os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
                assert os.waitpid(fork, 0)[1] == 0
            until = time.monotonic() + 10
            while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                assert time.monotonic() < until, "the handler is still there"
                time.sleep(0.01)
            with dask_strata.record("runs", client=client):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
"""


def test_the_handler_lasts_as_long_as_the_recording(
    tmp_path: Path, script: Callable[..., Path]
) -> None:
    """It is removed at the end and in forks; one of others that replaced it is left alone."""
    subprocess.run([sys.executable, script(HANDLERS)], cwd=tmp_path, check=True, timeout=60)
