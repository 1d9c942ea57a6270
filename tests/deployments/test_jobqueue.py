"""dask-jobqueue on a real Slurm: unchanged scripts are recorded, and end whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import rows, wait_until
from tests.deployments.scripts import STRATA, MakeWorkplace, Workplace
from tests.deployments.slurm import Slurm

pytest.importorskip("dask_jobqueue", reason="NOT TESTED: dask-jobqueue is not installed")

pytestmark = pytest.mark.long

_CLUSTER = """
    from dask_jobqueue import SLURMCluster

    def cluster(**more):
        return SLURMCluster(
            cores=1, processes=1, memory="500 MB", log_directory="logs", local_directory="dask",
            scheduler_options={"dashboard_address": ":0"}, **more,
        )
"""

_CLOSES = (
    _CLUSTER
    + """
    if __name__ == "__main__":
        with cluster(nanny=sys.argv[1] == "nanny") as made, Client(made) as client:
            made.scale(jobs=2)
            work(client)
"""
)

_CANCELLED = (
    _CLUSTER
    + """
    import subprocess
    from pathlib import Path

    def slow(i):
        time.sleep(0.05)
        return i

    if __name__ == "__main__":
        with cluster() as made, Client(made) as client:
            made.scale(jobs=2)
            client.register_plugin(Counting())
            client.wait_for_workers(2, timeout=60)
            futures = client.map(slow, range(200))
            while sum(f.status == "finished" for f in futures) < 50:
                time.sleep(0.05)
            subprocess.run(["scancel", next(iter(made.workers.values())).job_id], check=True)
            total = client.submit(sum, futures).result()
            del futures
            note_counts(client, total)
"""
)

_TIME_LIMIT = (
    _CLUSTER
    + """
    if __name__ == "__main__":
        with cluster(walltime="00:01:00") as made, Client(made) as client:
            made.scale(jobs=1)
            client.register_plugin(Counting())
            client.wait_for_workers(1, timeout=60)
            total = client.submit(sum, client.map(double, range(40))).result()
            unending = client.submit(time.sleep, 600)
            while client.nthreads():
                time.sleep(0.1)
            made.scale(0)
            del unending
            note_counts(client, total)
"""
)

_WORKERS_ENDS = "select * from processes where role = 'worker' and exit_reason is not null"


@pytest.fixture(scope="module")
def limited(
    slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Workplace, subprocess.Popen[str]]]:
    """Start a script whose job will reach its time limit of a minute, while other tests run."""
    place = Workplace(tmp_path_factory.mktemp("limit") / "place", slurm.environment)
    script = place.script(_TIME_LIMIT)
    process = subprocess.Popen(
        [STRATA, "record", "-q", script.name],
        cwd=place.folder,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield place, process
    place.kill()
    process.communicate(timeout=30)


@pytest.mark.parametrize("nanny", ["nanny", "no nanny"])
@pytest.mark.usefixtures("limited")
def test_a_cluster_of_jobs_ends_whole(
    slurm: Slurm, workplace: MakeWorkplace, *, nanny: str
) -> None:
    """Dask-jobqueue cancels its jobs when it closes; each worker has written its end."""
    place = workplace(slurm.environment)
    place.record(place.script(_CLOSES), nanny)
    if nanny == "no nanny":
        # Such a worker can hang in Dask after SIGTERM (without recording, too: in 6 of 12 scripts):
        # it cancels `Worker.close`, calls it again, and that waits for the end of the first call.
        wait_until(lambda: len(rows(place.run(), _WORKERS_ENDS)) == 2, what="the workers' ends")
        place.kill()
    run = place.assert_recorded()
    workers = rows(run, "select exit_reason from processes where role = 'worker'")
    assert len(workers) == 2
    assert all(row["exit_reason"] for row in workers)
    assert "unexpectedly" not in place.command(STRATA, "show", run.path).stdout
    wait_until(lambda: len(slurm.active_jobs()) <= 1, what="the end of the jobs")  # one is limited
    place.assert_nothing_left()


@pytest.mark.release
@pytest.mark.usefixtures("limited")
def test_a_cancelled_job_is_on_record_to_its_end(slurm: Slurm, workplace: MakeWorkplace) -> None:
    """After `scancel` of one job its tasks are computed again, and no attempt is missing."""
    place = workplace(slurm.environment)
    place.record(place.script(_CANCELLED))
    run = place.assert_recorded(result=sum(range(200)))
    ends = rows(run, "select exit_reason from processes where role = 'worker' order by stop")
    assert len(ends) >= 2
    assert all(row["exit_reason"] for row in ends)
    place.assert_nothing_left()


@pytest.mark.release
def test_a_job_that_reaches_its_time_limit_ends_whole(
    limited: tuple[Workplace, subprocess.Popen[str]],
) -> None:
    """Slurm sends SIGTERM at the limit; the worker that it stops has written its end."""
    place, process = limited
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0, output
    run = place.assert_recorded()
    assert rows(run, "select exit_reason from processes where role = 'worker'")[0]["exit_reason"]
    place.assert_nothing_left()
