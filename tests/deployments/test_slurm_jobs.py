"""The batch jobs of a run on a real Slurm: states, waits, limits, and the ends of workers.

The truth is what Slurm reports to the test itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run
from tests.conftest import rows, runs_in
from tests.deployments.slurm import Slurm

pytest.importorskip("dask_jobqueue")
pytestmark = pytest.mark.long

#: Two CPUs of eight for each job: four of five jobs start, one waits.
SCRIPT = """
import contextlib, subprocess, time
from dask_jobqueue import SLURMCluster
from distributed import Client


def busy(seconds):
    time.sleep(seconds)
    return 1


def until(condition):
    while not condition():
        time.sleep(0.1)


def main():
    cluster = SLURMCluster(
        cores=2, processes={processes}, memory="1GB", walltime={walltime!r}, interface="lo",
        local_directory={folder!r}, scheduler_options={{"dashboard_address": ":0"}},
    )
    # Dask's own `close` asserts that no job is left, in vain after one that ended by itself.
    with contextlib.suppress(AssertionError), cluster, Client(cluster) as client:
        cluster.scale(jobs={jobs})
        client.wait_for_workers({arrive})
        print("sum", sum(client.gather(client.map(busy, [0.1] * 20, pure=False))))
        {body}


if __name__ == "__main__":
    main()
"""


def run_script(slurm: Slurm, folder: Path, body: str, **values: Any) -> Run:
    """Run a script under `dask-strata record`; return its run."""
    options = {"walltime": "00:10:00", "jobs": 2, "arrive": 2, "processes": 1, **values}
    body = textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip()
    script = folder / "work.py"
    script.write_text(SCRIPT.format(folder=str(folder), body=body or "pass", **options))
    done = subprocess.run(
        [sys.executable, "-m", "dask_strata", "record", "-o", folder / "runs", script],
        cwd=folder,
        env=slurm.environment,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + slurm.logs()
    assert "sum 20\n" in done.stdout
    (run,) = runs_in(folder / "runs")
    return run


def assert_as_slurm(slurm: Slurm, run: Run) -> list[dict[str, Any]]:
    """Assert that ended jobs are as Slurm has them; return all jobs of the run."""
    jobs = rows(run, "select *, epoch(submitted) s, epoch(start) a, epoch(stop) b from jobs")
    for job in jobs:
        shown = slurm.wait_for_end(job["job"])
        assert job["state"] == shown["JobState"]
        assert job["nodes"] == (shown["NodeList"] or None)
        assert (job["queue"], job["name"]) == (shown["Partition"], shown["JobName"])
        assert job["cpus"] == int(shown["NumCPUs"])
        for column, name in (("s", "SubmitTime"), ("a", "StartTime"), ("b", "EndTime")):
            if job["nodes"]:
                assert job[column] == pytest.approx(_epoch(shown[name]), abs=1.1)
    return jobs


def _epoch(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


@pytest.mark.release
def test_cancelled_and_pending(slurm, tmp_path, strata):
    """A cancelled job and one that never started are on record as Slurm has them, and shown."""
    run = run_script(
        slurm,
        tmp_path,
        """
        victim = cluster.workers[next(iter(cluster.scheduler.workers.values())).name]
        subprocess.run(["scancel", victim.job_id], check=True)
        until(lambda: len(cluster.scheduler.workers) == 3)
        until(lambda: len(cluster.scheduler.workers) == 4)  # the fifth job has started
        """,
        jobs=6,
        arrive=4,
    )
    jobs = assert_as_slurm(slurm, run)
    assert len(jobs) == 6
    assert {job["state"] for job in jobs} == {"CANCELLED"}
    started = [job for job in jobs if job["start"]]
    (waited,) = (job for job in jobs if not job["start"])
    assert [job["n_workers"] for job in started] == [1] * 5
    assert all(job["used_seconds"] <= job["time_limit_seconds"] == 600 for job in started)
    assert all(job["memory_limit_bytes"] >= 1_000_000_000 for job in jobs)
    memory = [job["workers_rss_bytes"] for job in started if job["workers_rss_bytes"] is not None]
    assert len(memory) >= 4  # the last worker may end before it is sampled
    assert all(0 < used < 1_000_000_000 for used in memory)
    assert sum(job["n_tasks"] for job in jobs) == 20 == sum(job["n_attempts"] for job in jobs)
    assert waited["queue_seconds"] >= max(job["queue_seconds"] for job in started)
    (absent,) = rows(run, "from absent_workers")
    assert (absent["name"], absent["job"]) == (waited["worker_name"], waited["job"])
    assert absent["cause"] == "job never started"

    shown = strata("show", run.path, check=True).stdout
    assert "jobs       6 Slurm jobs on 2 nodes (partition normal): 6 CANCELLED, queue wait" in shown
    assert f"absent     1 worker never arrived ({waited['worker_name']}): its job never" in shown
    assert "the batch job was cancelled" in " ".join(
        shown.split()
    )  # the end of the worker that was not planned
    cancelled = min(started, key=lambda job: job["stop"])
    why = " ".join(strata("why", run.path, check=True).stdout.split())
    assert why.startswith("1 worker ended unexpectedly; ")
    assert f"whose act a user or program cancelled slurm job {cancelled['job']} (scancel)" in why
    found = json.loads(strata("jobs", run.path, "--format", "json", check=True).stdout)
    assert [job["job"] for job in found] == [job["job"] for job in jobs]


@pytest.mark.release
def test_time_limit(slurm, tmp_path, strata):
    """A job that reaches its time limit is TIMEOUT, and that explains the ends of its workers."""
    run = run_script(
        slurm,
        tmp_path,
        """
        held = client.submit(busy, 600)
        until(lambda: not cluster.scheduler.workers)
        held.cancel()
        """,
        jobs=1,
        arrive=2,
        processes=2,
        walltime="00:01:00",
    )
    (job,) = assert_as_slurm(slurm, run)
    assert (job["state"], job["n_workers"]) == ("TIMEOUT", 2)
    assert job["used_seconds"] >= job["time_limit_seconds"] == 60
    assert rows(run, "from absent_workers") == []
    shown = strata("show", run.path, check=True).stdout
    assert "jobs       1 Slurm job on 1 node (partition normal): 1 ended by TIMEOUT after " in shown
    assert "time limit of the batch job" in " ".join(shown.split())
    screen = strata("why", run.path, check=True).stdout
    assert len(screen.splitlines()) <= 45  # of both workers
    why = " ".join(screen.split())
    assert why.startswith("2 workers ended unexpectedly")
    reached = f"the batch system: slurm job {job['job']} reached its time limit of 60 s"
    assert why.count(reached) == 2
    assert "busy-" in why


def test_sbatch_and_srun(slurm, tmp_path):
    """Without dask-jobqueue, workers report the job that they and the scheduler run in."""
    script = tmp_path / "job.sh"
    python = f"{sys.executable} -m"
    script.write_text(
        f"""#!/bin/bash
{python} dask_strata record -o {tmp_path}/runs {tmp_path}/in_job.py
exit 3
"""
    )
    (tmp_path / "in_job.py").write_text(
        """
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            assert sum(client.gather(client.map(abs, range(10)))) == 45
"""
    )
    submitted = slurm.command("sbatch", "--parsable", "-n2", "-o", tmp_path / "out", script)
    shown = slurm.wait_for_end(submitted, 120)
    assert shown["ExitCode"] == "3:0", (tmp_path / "out").read_text()
    (run,) = runs_in(tmp_path / "runs")
    (job,) = rows(run, "from jobs")
    assert (job["job"], job["name"], job["n_workers"]) == (submitted, "job.sh", 2)
    # The recording ended before the job.
    assert (job["state"], job["stop"], job["exit_code"]) == ("RUNNING", None, None)
    assert (job["nodes"], job["n_tasks"]) == (shown["NodeList"], 10)
