"""Batch jobs of a run in a sentence and in rows, from synthetic reports of batch systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.jobs import absent_workers, summarize_jobs
from dask_strata.analysis.worker_ends import EXPLAINED, phrase_of
from tests.conftest import rows
from tests.support.synthetic import SECOND, T0, Process, new_run


def at(seconds: float) -> int:
    return T0 + int(seconds * SECOND)


def report(time: float, job: str, state: str, **facts: Any) -> dict[str, Any]:
    """Return a row of `job_states`; times are in seconds of the run."""
    for name in ("submitted", "start", "stop"):
        if facts.get(name) is not None:
            facts[name] = at(facts[name])
    ended = state not in {"PENDING", "RUNNING"}
    row = {"time": at(time), "system": "slurm", "job": job, "state": state, "ended": ended}
    return row | {"queue": "compute", "submitted": at(0)} | facts


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Four jobs: one hit its time limit, one ran to the end, one waits, one never had a worker."""
    folder = new_run(tmp_path / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.1:1")
    limit = {"time_limit_seconds": 60.0}
    scheduler.write(
        "job_states",
        [
            report(1, "7", "PENDING", reason="Priority", worker_name="C-0", **limit),
            report(9, "7", "RUNNING", start=5, nodes="n1", used_seconds=4.0, worker_name="C-0"),
            report(
                70, "7", "TIMEOUT", reason="TimeLimit", start=5, stop=66, nodes="n1", signal=15,
                used_seconds=61.0, memory_used_bytes=700, memory_limit_bytes=1000, **limit,
            ),
            report(70, "8", "RUNNING", start=2, nodes="n[1-2]", used_seconds=68.0, **limit),
            report(70, "9", "PENDING", reason="Resources", worker_name="C-2", **limit),
            report(
                70, "10", "FAILED", reason="NonZeroExitCode", exit_code=3, start=1, stop=2,
                nodes="n2", used_seconds=1.0, worker_name="C-3", **limit,
            ),
        ],
    )  # fmt: skip
    here, there = "tcp://10.0.0.2:1", "tcp://10.0.0.3:1"
    scheduler.write(
        "worker_events",
        [
            {"time": at(10), "worker": here, "name": "C-0-1", "action": "add", "nthreads": 1,
             "reason": "1 threads, 5 bytes, pid 11"},
            {"time": at(10), "worker": there, "name": "x", "action": "add", "nthreads": 1,
             "reason": "1 threads, 5 bytes, pid 12"},
            {"time": at(20), "name": "C-2", "action": "requested"},
            {"time": at(20), "name": "C-0-1", "action": "requested"},
            {"time": at(65), "worker": here, "action": "remove", "stimulus_id": "s-9",
             "reason": "unexpected: s-9"},
        ],
    )  # fmt: skip
    scheduler.end(at=at(80))
    worker = Process(folder, "worker-2", address=there, name="x", pid=12)
    worker.write(
        "job",
        [
            {"name": "launcher", "value": "slurm", "source": "SLURM_JOB_ID"},
            {"name": "job.id", "value": "8", "source": "SLURM_JOB_ID"},
            {"name": "job.account", "value": "physics", "source": "SLURM_JOB_ACCOUNT"},
        ],
    )
    worker.end()
    return open_run(folder)


def test_rows(run):
    """The last report of a job counts, and each fact is known once it was reported."""
    first, second, third, fourth = rows(run, "from jobs order by job::int")
    assert [first[name] for name in ("job", "state", "reason", "signal", "queue_seconds")] == [
        "7", "TIMEOUT", "TimeLimit", 15, 5.0,
    ]  # fmt: skip
    # dask-jobqueue starts several workers in a job: their names have a number more.
    assert (first["n_workers"], first["worker_name"], first["memory_used_bytes"]) == (1, "C-0", 700)
    assert (second["account"], second["n_workers"], second["stop"]) == ("physics", 1, None)
    assert (third["start"], third["queue_seconds"], third["n_workers"]) == (None, 70.0, 0)
    assert (fourth["exit_code"], fourth["n_workers"]) == (3, 0)


def test_sentence(run):
    """The sentence has nodes, partition, states with limits, and waits."""
    found = summarize_jobs(run)
    assert found is not None
    assert (found.n_jobs, found.n_nodes) == (4, 2)
    assert found.sentence == (
        "4 Slurm jobs on 2 nodes (partition compute): 1 FAILED, 1 still pending, "
        "1 still running, 1 ended by TIMEOUT after 61 s of 60 s, queue wait 1 s to 70 s"
    )


def test_absent(run):
    """Workers of pending jobs, and of jobs that ended before one arrived, are named."""
    found = {absent.names: absent.sentence for absent in absent_workers(run)}
    assert found == {
        ("C-2",): "1 worker never arrived (C-2): its job is pending "
        "(slurm job 9 PENDING (Resources))",
        ("C-3",): "1 worker never arrived (C-3): its job ended before "
        "(slurm job 10 FAILED (NonZeroExitCode))",
    }


def test_many_refused_workers_are_one_sentence(tmp_path):
    """The reasons differ in the names of the workers only."""
    scheduler = Process(new_run(tmp_path / "run"), "scheduler-1", address="tcp://10.0.0.1:1")
    refused = [
        {"time": at(1), "name": f"w-{i}", "action": "refused", "reason": f"name taken, w-{i}"}
        for i in range(6)
    ]
    scheduler.write("worker_events", refused)
    scheduler.end()
    (found,) = absent_workers(open_run(tmp_path / "run"))
    assert found.sentence == (
        "6 workers never arrived (w-0, w-1, w-2, w-3 and 2 more): refused by the scheduler "
        "(name taken)"
    )


def test_end_of_a_worker(run):
    """The time limit of a job explains the end of its worker."""
    (end,) = run.rows(EXPLAINED)
    assert (end["worker"], end["job_state"]) == ("tcp://10.0.0.2:1", "TIMEOUT")
    assert phrase_of(end).endswith("(time limit of the batch job)")


@pytest.mark.release
@pytest.mark.long
def test_command(run, strata):
    """The command prints one row a job, and the sentences below."""
    printed = strata("jobs", run.path, check=True).stderr
    assert "4 Slurm jobs on 2 nodes" in printed
    assert "1 worker never arrived (C-2)" in printed
    found = json.loads(strata("jobs", run.path, "--format", "json", check=True).stdout)
    assert sorted(job["job"] for job in found) == ["10", "7", "8", "9"]
    shown = json.loads(strata("show", run.path, "--format", "json", check=True).stdout)
    assert shown["jobs"]["states"] == {"FAILED": 1, "PENDING": 1, "RUNNING": 1, "TIMEOUT": 1}
    assert shown["absent_workers"][0]["n_workers"] == 1


@pytest.mark.long
def test_without_jobs(tmp_path, strata):
    """A run without batch jobs has no line on the first screen, and the command prints no rows."""
    folder = new_run(tmp_path / "run")
    Process(folder, "scheduler-1", address="tcp://10.0.0.1:1").end()
    run = open_run(folder)
    assert summarize_jobs(run) is None
    assert absent_workers(run) == ()
    printed = strata("jobs", folder, check=True)
    assert len(printed.stdout.splitlines()) == 1  # the names of the columns
    assert printed.stderr == "no batch job is on record\n"
    assert "jobs  " not in strata("show", folder, check=True).stdout
