"""Workers that never arrive are named, with the reason: refused, not started, only requested."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest
from distributed import Client, LocalCluster, Nanny, Worker
from distributed.deploy.spec import ProcessInterface
from packaging.version import Version

import dask_strata
from dask_strata import Run
from dask_strata.analysis.jobs import absent_workers
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.store.segments.read import segment_state
from tests.conftest import rows, runs_in, wait_until
from tests.support.leftovers import assert_nothing_left, on_scheduler


class NoLicence(Worker):
    """A worker that cannot start."""

    async def start_unsafe(self) -> Any:
        raise RuntimeError("no licence on this host")


class Dying(Worker):
    """A worker whose process ends while it starts."""

    async def start_unsafe(self) -> Any:
        os._exit(3)


class Waiting(ProcessInterface):
    """A worker as a batch job that waits for its turn; so does dask-jobqueue represent a job."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=1, processes=False, threads_per_worker=1, dashboard_address=":0"
    ) as made:
        yield made


def absent(run: Run) -> list[tuple[Any, ...]]:
    """Return cause, name and reason of each absent worker."""
    found = rows(run, "select cause, name, reason from absent_workers order by name, cause")
    return [tuple(row.values()) for row in found]


def recorded(runs: Path) -> Run:
    """Return the run, opened again, as far as it is recorded."""
    (run,) = runs_in(runs)
    return run


def ended(runs: Path) -> Run:
    """Return the run once all processes, the nanny too, have written their ends.

    The end of a recording does not wait for a nanny that failed: the scheduler does not know it.
    """

    def have_ended() -> bool:
        segments = recorded(runs).segments
        nannies = [each for each in segments if each.process.startswith("nanny")]
        return bool(nannies) and {segment_state(each) for each in segments} == {"ended"}

    wait_until(have_ended, what="the ends of the scheduler, the client and the nanny")
    return recorded(runs)


async def fail_to_start(cls: type, address: str, **options: Any) -> None:
    """Start a worker or nanny, which must fail."""
    with pytest.raises(RuntimeError, match="failed to start"):
        async with cls(address, dashboard_address=":0", nthreads=1, **options):
            pass


def test_refused(cluster, runs):
    """A worker with the name of another is refused: it is named, and counts as no worker."""
    with Client(cluster) as client:
        handler = cluster.scheduler.handlers["register-worker"]
        with dask_strata.record(runs, client=client) as run:
            client.sync(fail_to_start, Worker, cluster.scheduler.address, name=0)
            assert client.submit(lambda: 1).result() == 1
        assert cluster.scheduler.handlers["register-worker"] == handler
        assert_nothing_left(client, runs)
    assert absent(run) == [("refused", "0", "name taken, 0")]
    assert [row["name"] for row in rows(run, "select name from workers")] == ["0"]
    (found,) = absent_workers(run)
    assert found.sentence == (
        "1 worker never arrived (0): refused by the scheduler (name taken, 0)"
    )


def test_recordings_that_overlap(cluster, runs):
    """Each of two recordings restores the handler, also if the first one ends first."""
    with Client(cluster) as client:
        handler = cluster.scheduler.handlers["register-worker"]
        first = dask_strata.record(runs / "a", client=client)
        second = dask_strata.record(runs / "b", client=client)
        with second as run:
            with first:
                pass
            client.sync(fail_to_start, Worker, cluster.scheduler.address, name=0)
        assert [cause for cause, *_ in absent(run)] == ["refused"]
        assert absent(recorded(runs / "a")) == []
        first = dask_strata.record(runs / "c", client=client)
        second = dask_strata.record(runs / "d", client=client)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        client.sync(fail_to_start, Worker, cluster.scheduler.address, name=0)
        second.__exit__(None, None, None)
        assert cluster.scheduler.handlers["register-worker"] == handler
        assert not client.run_on_scheduler(on_scheduler, str(runs))
    assert absent(recorded(runs / "c")) == []
    assert [cause for cause, *_ in absent(recorded(runs / "d"))] == ["refused"]


def test_requested(cluster, runs):
    """A worker that a cluster object was asked for, and that does not appear, is named."""
    with Client(cluster) as client, dask_strata.record(runs, client=client):
        cluster.worker_spec["late"] = {"cls": Waiting, "options": {}}
        cluster.sync(cluster._correct_state)
        wait_until(lambda: absent(recorded(runs)), what="the name of the absent worker")
    assert absent(recorded(runs)) == [("requested", "late", None)]


@pytest.mark.long
def test_not_started(cluster, runs, strata):
    """A nanny that cannot start its worker reports the error, and the first screen shows it."""
    with Client(cluster) as client, dask_strata.record(runs, client=client):
        client.sync(
            fail_to_start, Nanny, cluster.scheduler.address, name="b", worker_class=NoLicence
        )
    run = ended(runs)
    assert absent(run) == [("start failed", "b", "RuntimeError: no licence on this host")]
    shown = strata("show", run.path, check=True).stdout
    assert (
        "absent     1 worker never arrived (b): its nanny could not start it "
        "(RuntimeError: no licence on this host)"
    ) in shown
    assert "jobs       " not in shown  # no batch job is on record


@pytest.mark.long
def test_a_nanny_that_restarts_its_worker(runs):
    """A worker that arrived, and whose process was replaced, is not absent."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        client.restart()
        assert client.submit(lambda: 1).result() == 1
    assert absent(run) == []


def test_a_worker_that_stays_keeps_no_recorder(cluster, runs):
    """The handler of a registration runs until the worker leaves, after the recording, too."""
    with Client(cluster) as client:
        with dask_strata.record(runs, client=client):
            cluster.scale(2)
            client.wait_for_workers(2)
        assert_nothing_left(client, runs)
        gc.collect()
        engines = [each for each in gc.get_objects() if type(each) is Engine]
        assert [each for each in engines if each.folder.is_relative_to(runs)] == []


@pytest.mark.long
@pytest.mark.skipif(
    Version(distributed.__version__) < Version("2026.8"),
    reason="an older nanny may wait without end for a process that ended while it started",
)
def test_a_process_that_ends_while_it_starts(cluster, runs):
    """A worker whose process ends by itself is named, with its exit status."""
    with Client(cluster) as client, dask_strata.record(runs, client=client):
        client.sync(fail_to_start, Nanny, cluster.scheduler.address, worker_class=Dying)
    reason = "its process exited with status 3 before it connected"
    (found,) = absent_workers(ended(runs))
    assert (found.cause, found.reason) == ("start failed", reason)


@pytest.mark.long
def test_workers_that_are_closed_while_they_start(runs):
    """A cluster that is scaled up and down again has no absent workers."""
    started = "select count(*) as n from worker_events where action = 'process-start'"
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        cluster.scale(3)
        wait_until(lambda: rows(recorded(runs), started)[0]["n"] == 3, what="the processes")
        cluster.scale(1)
        wait_until(lambda: len(cluster.workers) == 1, what="the end of the others")
    assert absent(run) == []
    assert run.check().ok, run.check().missing
