"""Whose act an end was, from rows that the tests choose: each states what is on record, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.analysis.why import why
from dask_strata.errors import UnknownWorkerError
from dask_strata.report.why import plain_why
from tests.support.synthetic import SECOND, T0, Process, new_run

WORKER = "tcp://10.0.0.2:5"
REMOVED = T0 + 5 * SECOND


def run_of(
    folder: Path,
    nanny_rows: list[dict[str, Any]],
    *,
    jobs: list[dict[str, Any]] | None = None,
    reason: str = "unexpected: cleanup-1",
    others: tuple[str, ...] = (),
) -> Path:
    """Make a run in which one worker is removed, after what its nanny recorded."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.1:1")
    add = {"action": "add", "reason": "1 threads, 4096 bytes, pid 7"}
    scheduler.write(
        "worker_events",
        [
            {"time": T0, "worker": WORKER, "name": "w\x1b[31m", **add},
            *({"time": T0, "worker": other, "name": other, **add} for other in others),
            {
                "time": REMOVED,
                "worker": WORKER,
                "action": "remove",
                "reason": reason,
                "stimulus_id": "cleanup-1",
            },
        ],
    )
    if jobs:
        scheduler.write("job_states", jobs)
    scheduler.end(at=T0 + 60 * SECOND)
    worker = Process(folder, "worker-1", address=WORKER, name="w\x1b[31m", pid=7, host="n1")
    if jobs:
        worker.write(
            "job",
            [
                {"name": "job.id", "value": "12", "source": "SLURM_JOB_ID"},
                {"name": "launcher", "value": "slurm", "source": "SLURM_JOB_ID"},
            ],
        )
    nanny = Process(
        folder, "nanny-1", role="nanny", address="tcp://10.0.0.2:9", host="n1", name="w\x1b[31m"
    )
    if nanny_rows:
        nanny.write("worker_events", nanny_rows)
    nanny.end(at=T0 + 60 * SECOND)
    return folder


def event(action: str, reason: str, seconds: float = 5.1) -> dict[str, Any]:
    """Return a row of the nanny."""
    time = T0 + int(seconds * SECOND)
    return {"time": time, "action": action, "reason": reason, "name": "w\x1b[31m"}


KILLED = event("process-exit", "pid 7 was killed by SIGKILL")
TERMINATED = event("process-exit", "pid 7 was killed by SIGTERM")
ROSE = event("oom-kill", "pid 7: oom_kill of /group/memory.events rose from 0 to 1, memory.max 9")
STAYED = event("no-oom-kill", "pid 7: oom_kill of /group/memory.events stayed 0")


def job(state: str) -> list[dict[str, Any]]:
    """Return the end of the worker's job in a state."""
    return [
        {
            "time": REMOVED + SECOND,
            "system": "slurm",
            "job": "12",
            "state": state,
            "ended": True,
            "stop": REMOVED + SECOND,
            "time_limit_seconds": 60.0,
        }
    ]


#: Rows of the nanny, state of the batch job, cause, and words of the act and of the advice.
CASES: dict[str, tuple[list[dict[str, Any]], str | None, str, str, str]] = {
    "kernel": ([ROSE, KILLED], None, "oom killer", "rose from 0 to 1, memory.max 9", "control"),
    "somebody": ([STAYED, KILLED], None, "signal", "not the kernel's OOM killer, whose", "dmesg"),
    "unknown": ([KILLED], None, "signal", "OOM killer is unknown", "dmesg"),
    "limit": ([TERMINATED], "TIMEOUT", "signal", "its time limit of 60 s", "request more time"),
    "scancel": ([TERMINATED], "CANCELLED", "signal", "cancelled slurm job 12 (scancel)", "who"),
    "job's memory": ([STAYED, KILLED], "OUT_OF_MEMORY", "signal", "ran out of memory", "--mem"),
    "kernel in a job": ([ROSE, KILLED], "OUT_OF_MEMORY", "oom killer", "rose from 0", "control"),
    "preempted": ([TERMINATED], "PREEMPTED", "signal", "was preempted", "preemption"),
    "node": ([], "NODE_FAIL", "connection lost", "a node of slurm job 12 failed", "operators"),
    "abort": (
        [event("process-exit", "pid 7 was killed by SIGABRT")],
        None,
        "signal",
        "a fault in compiled code, unless another process sent SIGABRT",
        "C library",
    ),
    "exit": (
        [event("process-exit", "pid 7 exited with status 9")],
        None,
        "exit",
        "exited with status 9 without closing",
        "os._exit",
    ),
    "nothing": ([], None, "connection lost", "unknown: the connection broke", "network"),
}


@pytest.mark.parametrize("case", CASES)
def test_acts(tmp_path: Path, case: str) -> None:
    """The cause, whose act it was, and what to do fit the rows."""
    rows, state, cause, act, advice = CASES[case]
    run = open_run(run_of(tmp_path / "r", rows, jobs=None if state is None else job(state)))
    [found] = why(run).post_mortems
    assert (found.end.cause, found.end.ended) == (cause, "unexpected")
    assert act in found.end.act
    assert found.end.advice is not None
    assert advice in found.end.advice
    # Names of workers are untrusted.
    text = plain_why(why(run))
    assert "\x1b" not in text
    assert "worker w\\x1b[31m · " in text


def test_planned_and_unknown_ends(tmp_path: Path) -> None:
    """A retired worker is planned; one whose removal has no reason is neither."""
    run = open_run(run_of(tmp_path / "a", [], reason="expected: retire-workers-1"))
    assert plain_why(why(run)).startswith("no worker ended unexpectedly; 1 as planned: 1 retired")
    run = open_run(run_of(tmp_path / "b", [], reason="cleanup-1"))
    assert "of 1 end it is not on record whether it was planned" in plain_why(why(run))


def test_workers_that_did_not_end(tmp_path: Path) -> None:
    """The error states whether the worker was there, and which ones ended."""
    run = open_run(run_of(tmp_path / "r", [KILLED], others=("tcp://10.0.0.3:5",)))
    with pytest.raises(UnknownWorkerError, match="was there until the recording ended"):
        why(run, "tcp://10.0.0.3:5")
    with pytest.raises(UnknownWorkerError, match="No worker x ended in this run"):
        why(run, "x")
    assert why(run, 7).ends == why(run, "7").ends == why(run, WORKER).ends
