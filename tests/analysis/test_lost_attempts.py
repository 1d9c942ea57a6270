"""Attempts that ended with their worker are a fault only if the worker ended unexpectedly.

The truth is measured by the tasks, which note their process and the time when they begin.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dask_strata
from dask_strata import Run, open_run
from dask_strata.analysis.diagnosis import Insight
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.words import duration
from tests.conftest import rows, wait_until
from tests.support.deployment import PRELOAD, Deployment, workers_of
from tests.support.synthetic import T0, Process, life, new_run

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

N_TASKS = 4


def work(folder: Path, name: str) -> int:
    """Note the process once the start is on record, and compute for 1.5 s."""
    dask_strata.flush()
    (folder / f"{name}.{os.getpid()}").touch()
    time.sleep(1.5)
    return os.getpid()


def began(folder: Path) -> Counter[str]:
    """Return how many processes began each task."""
    return Counter(path.name.partition(".")[0] for path in folder.iterdir())


def retire(client: Client, cluster: LocalCluster, worker: str) -> None:
    """Retire the worker."""
    del cluster
    client.retire_workers([worker])


def scale_down(client: Client, cluster: LocalCluster, worker: str) -> None:
    """Close the worker that the cluster chooses."""
    del client, worker
    cluster.scale(1)


def restart_workers(client: Client, cluster: LocalCluster, worker: str) -> None:
    """Restart the worker; its tasks start again."""
    del cluster
    client.restart_workers([worker])


def kill(client: Client, cluster: LocalCluster, worker: str) -> None:
    """Kill the worker's process, without a call that would outlast its tasks."""
    del client
    [nanny] = [n for n in cluster.workers.values() if n.worker_address == worker]
    os.kill(nanny.pid, signal.SIGKILL)


def repeated(run: Run) -> list[Insight]:
    """Return the insights about tasks that were computed again."""
    return [insight for insight in summarize(run).insights if "computed again" in insight.text]


def graves(run: Run) -> list[str]:
    """Return the insights that are faults."""
    return [insight.text for insight in summarize(run).insights if insight.grave]


@pytest.mark.release
@pytest.mark.parametrize(
    "end",
    [
        retire,
        kill,
        pytest.param(scale_down, marks=pytest.mark.long),
        pytest.param(restart_workers, marks=pytest.mark.long),
    ],
)
def test_only_unexpected_ends_are_faults(
    cluster: LocalCluster,
    client: Client,
    runs: Path,
    tmp_path: Path,
    end: Callable[[Client, LocalCluster, str], None],
) -> None:
    """Tasks that a planned end interrupts are computed again; after SIGKILL that is a fault."""
    folder = tmp_path / "began"
    folder.mkdir()
    with dask_strata.record(runs, client=client) as run:
        tasks = [client.submit(work, folder, f"t{n}", pure=False) for n in range(N_TASKS)]
        wait_until(lambda: len(began(folder)) == N_TASKS, what="all tasks to begin")
        end(client, cluster, min(client.nthreads()))
        client.gather(tasks)
    again = sum(n > 1 for n in began(folder).values())
    assert again
    [insight] = repeated(run)
    assert f"{again} task{'s' if again > 1 else ''} " in insight.text
    assert insight.grave == (end is kill)
    assert bool(graves(run)) == (end is kill)
    assert insight.cause == ("lost-worker" if end is kill else "recomputation")
    assert insight.seconds
    [lost] = rows(
        run, "select count(*) as n, sum(compute_seconds) as s from attempts where outcome = 'lost'"
    )
    assert lost["n"] == again
    assert duration(lost["s"]) in insight.evidence


def test_a_restart_of_the_cluster_is_no_fault(
    cluster: LocalCluster, client: Client, runs: Path, tmp_path: Path
) -> None:
    """A restart releases all tasks: none is computed again, and nothing is a fault."""
    del cluster
    folder = tmp_path / "began"
    folder.mkdir()
    with dask_strata.record(runs, client=client) as run:
        tasks = [client.submit(work, folder, f"t{n}", pure=False) for n in range(N_TASKS)]
        wait_until(lambda: len(began(folder)) == N_TASKS, what="all tasks to begin")
        client.restart()
        del tasks
        assert client.submit(sum, [1, 2]).result() == 3
    assert max(began(folder).values()) == 1
    assert not repeated(run)
    assert not graves(run)


def test_a_kill_after_a_planned_end_at_the_same_address_is_unexpected(
    deployment: Deployment,
) -> None:
    """An announcement of one worker does not excuse the end of the next one at its address."""
    deployment.scheduler(*PRELOAD)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        at = ("--no-nanny", "--host", "127.0.0.1", "--worker-port", probe.getsockname()[1])
    first = deployment.worker(*at, "--name", "first")
    with deployment.client() as client:
        client.wait_for_workers(1)
        address = workers_of(client)["first"]
        client.retire_workers([address], close_workers=True)
        assert first.wait(60) == 0
        wait_until(lambda: not workers_of(client), what="the end of the first worker")
        second = deployment.worker(*at, "--name", "second")
        client.wait_for_workers(1)
        assert workers_of(client) == {"second": address}
        second.kill()
        wait_until(lambda: not workers_of(client), what="the end of the second worker")
    run = deployment.run()
    reasons = rows(run, "select name, split_part(end_reason, ':', 1) as reason from workers")
    assert {row["name"]: row["reason"] for row in reasons}["second"] == "unexpected"
    assert graves(run)[0].startswith("1 worker ended unexpectedly")


@pytest.mark.release
@pytest.mark.parametrize(
    ("reason", "grave"),
    [
        ("expected: retire-workers-1", False),
        ("announced: worker-lifetime-reached", False),
        ("announced: signal-15", False),
        ("unexpected: client-restart-workers-1", False),
        ("unexpected: handle-worker-cleanup-1", True),
        ("announced: worker-heartbeat-missing", True),
        ("announced: worker-execute-fail-hard", True),
        ("announced: check-worker-ttl-1", True),
        ("handle-worker-cleanup-1", False),
    ],
)
def test_reasons(tmp_path: Path, reason: str, *, grave: bool) -> None:
    """The reason of a removal is what Dask calls it, and what the worker had announced."""
    worker, other = "tcp://w:1", "tcp://w:2"
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    stimulus = "the-end"
    second = 1_000_000_000
    scheduler.write(
        "worker_events",
        [
            {"time": T0, "worker": worker, "name": "w", "action": "add", "nthreads": 1},
            {"time": T0, "worker": other, "name": "v", "action": "add", "nthreads": 1},
            {
                "time": T0 + 3 * second,
                "worker": worker,
                "action": "remove",
                "reason": reason,
                "stimulus_id": stimulus,
            },
        ],
    )
    first = life("a-1", 1, 3, worker)
    first[-1].update(finish_state="released", stimulus_id=stimulus, startstops=None)
    again = life("a-1", 4, 6, other)
    again[0]["start_state"] = "released"
    scheduler.write("scheduler_transitions", first + again)
    scheduler.end()
    process = Process(folder, "worker-1", address=worker, name="w", nthreads=1)
    at = {"key": "a-1", "worker": worker, "run_id": 1, "execution": 1, "thread": 1}
    process.write(
        "executions",
        [{**at, "kind": "thread", "start": T0 + second, "stop": T0 + 3 * second}],
    )
    process.end(at=T0 + 3 * second)
    run = open_run(folder)
    [insight] = repeated(run)
    assert insight.grave == grave
    assert bool(graves(run)) == grave
