"""Whose act an end was, from rows that the tests choose: each states what is on record, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.why import why
from dask_strata.errors import UnknownWorkerError
from dask_strata.report.why import plain_why
from tests.support.synthetic import SECOND, T0, Process, new_run

REMOVED = T0 + 5 * SECOND

KILLED = ("process-exit", "pid {} was killed by SIGKILL")
TERMINATED = ("process-exit", "pid {} was killed by SIGTERM")
ROSE = ("oom-kill", "pid {}: oom_kill of control group /g rose from 0 to 1, memory.max 9")
STAYED = ("no-oom-kill", "pid {}: oom_kill of control group /g stayed 0")

#: Rows of the nanny, state of the batch job, cause, and words of the act and of the advice.
CASES: dict[str, tuple[list[tuple[str, str]], str | None, str, str, str]] = {
    "kernel": ([ROSE, KILLED], None, "oom killer", "rose from 0 to 1, memory.max 9", "control"),
    "somebody": ([STAYED, KILLED], None, "signal", "not the kernel's OOM killer, whose", "dmesg"),
    "unknown": ([KILLED], None, "signal", "OOM killer is unknown", "dmesg"),
    "limit": ([TERMINATED], "TIMEOUT", "signal", "its time limit of 60 s", "request more time"),
    "scancel": ([TERMINATED], "CANCELLED", "signal", "cancelled slurm job 3 (scancel)", "who"),
    "memory": ([STAYED, KILLED], "OUT_OF_MEMORY", "signal", "ran out of memory", "--mem"),
    "in-a-job": ([ROSE, KILLED], "OUT_OF_MEMORY", "oom killer", "rose from 0", "control"),
    "preempted": ([TERMINATED], "PREEMPTED", "signal", "was preempted", "preemption"),
    "node": ([], "NODE_FAIL", "connection lost", "a node of slurm job 7 failed", "operators"),
    "abort": (
        [("process-exit", "pid {} was killed by SIGABRT")],
        None,
        "signal",
        "a fault in compiled code, unless another process sent SIGABRT",
        "C library",
    ),
    "exit": (
        [("process-exit", "pid {} exited with status 9")],
        None,
        "exit",
        "exited with status 9 without closing",
        "os._exit",
    ),
    "nothing\x1b[31m": ([], None, "connection lost", "unknown: the connection broke", "network"),
}

NAMES = list(CASES)


def address(name: str) -> str:
    """Return the address of a worker."""
    return f"tcp://10.0.0.2:{100 + NAMES.index(name)}"


def scheduler_rows(name: str, reason: str = "unexpected: cleanup") -> list[dict[str, Any]]:
    """Return the rows of a worker that comes and is removed."""
    number = NAMES.index(name)
    at = {"worker": address(name), "name": name}
    return [
        {"time": T0, **at, "action": "add", "reason": f"1 threads, 4096 bytes, pid {number}"},
        {
            "time": REMOVED,
            "worker": address(name),
            "action": "remove",
            "reason": f"{reason}-{number}",
            "stimulus_id": f"cleanup-{number}",
        },
    ]


def add_processes(folder: Path, name: str) -> None:
    """Write the records of a worker, which was cut off, and of its nanny."""
    events, state, *_ = CASES[name]
    number = NAMES.index(name)
    facts = {"name": name, "host": "n1"}
    worker = Process(folder, f"worker-{number}", address=address(name), **facts)
    if state is not None:
        worker.write(
            "job",
            [
                {"name": "job.id", "value": str(number - 1), "source": "SLURM_JOB_ID"},
                {"name": "launcher", "value": "slurm", "source": "SLURM_JOB_ID"},
            ],
        )
    at = f"tcp://10.0.0.2:{900 + number}"
    nanny = Process(folder, f"nanny-{number}", address=at, **facts)
    rows = [
        {"time": REMOVED + SECOND, "action": action, "reason": text.format(number), "name": name}
        for action, text in events
    ]
    if rows:
        nanny.write("worker_events", rows)
    nanny.end(at=T0 + 60 * SECOND)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which one worker for each case is removed, and another one stays."""
    folder = new_run(tmp_path_factory.mktemp("acts") / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.1:1")
    added = {"action": "add", "reason": "1 threads, 4096 bytes, pid 999"}
    scheduler.write(
        "worker_events",
        [
            {"time": T0, "worker": "tcp://10.0.0.3:5", "name": "stays", **added},
            *(row for name in NAMES for row in scheduler_rows(name)),
        ],
    )
    scheduler.write(
        "job_states",
        [
            {
                "time": REMOVED + SECOND,
                "system": "slurm",
                "job": str(number - 1),
                "state": CASES[name][1],
                "ended": True,
                "stop": REMOVED + SECOND,
                "time_limit_seconds": 60.0,
            }
            for number, name in enumerate(NAMES)
            if CASES[name][1] is not None
        ],
    )
    scheduler.end(at=T0 + 60 * SECOND)
    for name in NAMES:
        add_processes(folder, name)
    return open_run(folder)


@pytest.mark.parametrize("name", NAMES)
def test_acts(run: Run, name: str) -> None:
    """The cause, whose act it was, and what to do fit the rows."""
    _, _, cause, act, advice = CASES[name]
    [found] = why(run, name).post_mortems
    assert (found.end.cause, found.end.ended) == (cause, "unexpected")
    assert act in found.end.act
    assert found.end.advice is not None
    assert advice in found.end.advice


def test_names_are_untrusted(run: Run) -> None:
    """Control characters are spelled out, in the post-mortem and in the list."""
    for text in (plain_why(why(run, NAMES[-1])), plain_why(why(run))):
        assert "\x1b" not in text
    assert "worker nothing\\x1b[31m · " in plain_why(why(run, NAMES[-1]))


def test_workers_that_did_not_end(run: Run) -> None:
    """The error states whether the worker was there, and which ones ended."""
    with pytest.raises(UnknownWorkerError, match="was there until the recording ended"):
        why(run, "stays")
    with pytest.raises(UnknownWorkerError, match="No worker x ended in this run") as raised:
        why(run, "x")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("Workers that ended: ")
    assert "and 2 more" in raised.value.hint
    assert why(run, 3).ends == why(run, "3").ends == why(run, address(NAMES[3])).ends


def test_planned_and_unknown_ends(tmp_path: Path) -> None:
    """A retired worker is planned; one whose removal has no reason is neither."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.1:1")
    for name, reason in (("kernel", "expected: retire-workers"), ("unknown", "cleanup")):
        scheduler.write("worker_events", scheduler_rows(name, reason))
    scheduler.end(at=T0 + 60 * SECOND)
    lines = plain_why(why(open_run(folder))).splitlines()
    assert lines[0] == (
        "no worker ended unexpectedly; of 1 end it is not on record whether it was planned; "
        "1 as planned: 1 retired (client.retire_workers, or an adaptive cluster)"
    )
