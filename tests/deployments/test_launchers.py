"""Launchers that start each process of a cluster: srun, SLURMRunner, mpirun with dask-mpi."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from dask_strata import Run
from tests.conftest import rows, wait_until
from tests.deployments.scripts import STRATA, MakeWorkplace
from tests.deployments.slurm import Slurm

pytestmark = pytest.mark.long

_BIN = Path(sys.executable).parent

_RUNNER = """
    from dask_jobqueue.slurm import SLURMRunner

    if __name__ == "__main__":
        with SLURMRunner(
            scheduler_file="{job_id}.json",
            scheduler_options={"port": 0, "dashboard_address": ":0"},
            worker_options={"nthreads": 1, "local_directory": "dask"},
        ) as runner, Client(runner) as client:
            work(client, runner.n_workers)
"""

_MPI = """
    import dask_mpi

    if __name__ == "__main__":
        dask_mpi.initialize(
            dashboard=False, nthreads=1, local_directory="dask", worker_class="distributed.Worker"
        )
        with Client() as client:
            work(client)
"""

_WAITS = """
    if __name__ == "__main__":
        with Client(scheduler_file="scheduler.json") as client:
            work(client)
            print("done", flush=True)
            time.sleep(600)
"""

#: The processes of a cluster as steps of one job, with recording switched on by the environment.
_STEPS = """#!/bin/sh
export DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["dask_strata"]'
export DASK_DISTRIBUTED__CLIENT__PRELOAD='["dask_strata"]'
at="--scheduler-file scheduler.json --dashboard-address :0"
srun --overlap -n1 {bin}/dask scheduler --port 0 $at &
srun --overlap -n2 {bin}/dask worker --nthreads 1 --local-directory dask $at &
{bin}/python pipeline.py &
wait
"""


def assert_one_line_a_rank(messages: str, run: Run) -> None:
    """Assert that each rank of four named the run, and none that nothing was recorded."""
    lines = [line for line in messages.splitlines() if line.startswith("dask-strata:")]
    assert len(lines) == 4, messages
    assert all(run.path.name in line for line in lines)
    assert sum("script's worker is recorded" in line for line in lines) == 2


def test_slurmrunner_is_one_run(slurm: Slurm, workplace: MakeWorkplace) -> None:
    """Each rank of `srun dask-strata record` is part of one run, named by the script."""
    pytest.importorskip("dask_jobqueue", reason="NOT TESTED: dask-jobqueue is not installed")
    place = workplace(slurm.environment)
    script = place.script(_RUNNER)
    done = place.command("srun", "-N2", "-n4", STRATA, "record", "-q", script.name)
    run = place.assert_recorded()
    assert_one_line_a_rank(done.stderr, run)
    assert "unexpectedly" not in place.command(STRATA, "show", run.path).stdout
    assert place.command(STRATA, "why", run.path).stdout.startswith("no worker ended ")
    place.assert_nothing_left()


def test_a_cancelled_job_with_the_whole_cluster_ends_whole(
    slurm: Slurm, workplace: MakeWorkplace
) -> None:
    """`scancel` stops scheduler, workers and client at once; all of them write their end."""
    place = workplace(slurm.environment)
    place.script(_WAITS)
    steps = place.folder / "steps.sh"
    steps.write_text(_STEPS.format(bin=_BIN))
    job = place.command(
        "sbatch", "--parsable", "-N2", "-n4", "--mem-per-cpu=256M", "-o", "job.log", steps
    ).stdout.strip()
    log = place.folder / "job.log"
    wait_until(lambda: log.exists() and "done" in log.read_text(), what="the script's result")
    place.command("scancel", job)
    assert slurm.wait_for_end(job)["JobState"] == "CANCELLED"
    run = place.assert_recorded(None)
    assert not rows(run, "select * from processes where exit_reason is null")
    place.assert_nothing_left()


def test_dask_mpi_is_one_run(workplace: MakeWorkplace) -> None:
    """Each rank of `mpirun dask-strata record` is part of one run, named by the script."""
    pytest.importorskip("dask_mpi", reason="NOT TESTED: dask-mpi is not installed")
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("NOT TESTED: there is no mpirun (apt-get install openmpi-bin)")
    place = workplace()
    script = place.script(_MPI)
    done = place.command(
        *(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", 4),
        *(STRATA, "record", "-q", script.name),
    )
    run = place.assert_recorded()
    assert_one_line_a_rank(done.stderr, run)
    assert "unexpectedly" not in place.command(STRATA, "show", run.path).stdout
    assert place.command(STRATA, "why", run.path).stdout.startswith("no worker ended ")
    place.assert_nothing_left()
