"""Which rows of the table `stuck` are the present ones."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dask_strata import open_run
from dask_strata.analysis.overview.stuck import Stuck, stuck_of
from dask_strata.report.terminal.stuck import print_stuck, situation, stuck_line
from dask_strata.schema.measured.stuck import place_in
from tests.support.synthetic import SECOND, T0, Process, moves, new_run


def finding(at: float, key: str | None = "load-1", **columns: Any) -> dict[str, Any]:
    """Return a row of a task that has run since the begin of the run."""
    return {
        "time": T0 + int(at * SECOND),
        "kind": "long-running",
        "key": key,
        "prefix": "load",
        "worker": "tcp://w:1",
        "worker_name": "2",
        "since": T0,
        "seconds": float(at),
        "typical_seconds": 1.2,
        "n_finished": 50,
        **columns,
    }


def run_of(
    folder: Path,
    rows: list[dict[str, Any]],
    last: float,
    transitions: Any = (),
    outcome: str = "recording",
) -> Stuck | None:
    """Return the stuck tasks of a run with these rows, whose last sample was at a time."""
    scheduler = Process(new_run(folder), "scheduler-1", address="tcp://s:1")
    scheduler.write("stuck", rows)
    scheduler.write("scheduler_samples", [{"time": T0 + int(last * SECOND), "tasks": 1}])
    if transitions:
        scheduler.write("scheduler_transitions", list(transitions))
    return stuck_of(open_run(folder), outcome)


def test_the_rows_of_the_last_check_are_shown(tmp_path: Path) -> None:
    """Rows of earlier checks are not, and five of a kind are in words."""
    rows = [finding(20, "gone"), *(finding(30, f"load-{i}") for i in range(7))]
    stuck = run_of(tmp_path / "r", rows, 35)
    assert stuck is not None
    assert [row["key"] for row in stuck.findings] == [f"load-{i}" for i in range(7)]
    lines = stuck.lines()
    assert lines[0] == "load-0 has run for 30 s on worker 2, typical for load is 1.2 s"
    assert lines[5:] == ["and 2 more: see the table stuck"]


def test_an_old_check_is_not_the_present(tmp_path: Path) -> None:
    """Up to two intervals and a half after the last finding it may still be so."""
    assert run_of(tmp_path / "a", [finding(10)], 34) is not None
    assert run_of(tmp_path / "b", [finding(10)], 36) is None


@pytest.mark.parametrize(
    ("end", "shown"),
    [("memory", False), ("erred", False), ("forgotten", False), ("released", True)],
)
def test_a_task_that_ended_is_not_stuck(tmp_path: Path, end: str, *, shown: bool) -> None:
    """A task that finished or failed after the check was slow; a released one did not end."""
    after = moves("load-1", (12, "processing", end))
    assert (run_of(tmp_path / "r", [finding(10)], 15, after) is not None) is shown


@pytest.mark.parametrize(("outcome", "shown"), [("recording", False), ("cancelled", True)])
def test_a_task_that_was_forgotten_with_its_client(
    tmp_path: Path, outcome: str, *, shown: bool
) -> None:
    """If the run ended with the client, the task was stuck until then; else it is gone."""
    after = moves("load-1", (12, "released", "forgotten"), stimulus_id="remove-client-12.3")
    assert (run_of(tmp_path / "r", [finding(10)], 15, after, outcome) is not None) is shown
    other = moves("load-1", (12, "released", "forgotten"), stimulus_id="client-releases-keys-12.3")
    assert run_of(tmp_path / "o", [finding(10)], 15, other, outcome) is None


def test_a_finished_run_has_nothing_stuck(tmp_path: Path) -> None:
    """The same rows in a run that finished are no finding."""
    assert run_of(tmp_path / "r", [finding(10)], 12) is not None
    assert stuck_of(open_run(tmp_path / "r"), "finished") is None
    cut = stuck_of(open_run(tmp_path / "r"), "cut off")
    assert cut is not None
    assert not cut.present


def test_the_last_sample_of_a_silent_worker_has_its_line(tmp_path: Path) -> None:
    """A worker that does not answer has the line of its task's last sample before."""
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1", address="tcp://w:1")
    sample = {"key": "load-1", "worker": "tcp://w:1", "last": T0, "function": "read"}
    done, under_way = {"execution": 1, "file": "/me/done.py", "line": 1}, {"execution": 2}
    under_way |= {"file": "/me/reader.py", "line": 88}
    worker.write("task_samples", [{**sample, **done, "last": T0 + 1}, {**sample, **under_way}])
    worker.write("executions", [{"execution": 1, "key": "load-0", "worker": "tcp://w:1"}])
    silent = finding(10, None, kind="no-answer", reason="no heartbeat")
    stuck = run_of(folder, [silent], 12)
    assert stuck is not None
    [line] = stuck.lines()
    assert line.startswith("worker 2 has not answered for 10 s: no heartbeat; ")
    assert line.endswith("the last sample of load-1 was in read (reader.py:88)")


def test_control_characters_are_not_printed(tmp_path: Path) -> None:
    """A key with an escape sequence appears without it, on the screen and in the line."""
    stuck = run_of(tmp_path / "r", [finding(10, "load\x1b[31m")], 12)
    out = Console(file=io.StringIO(), width=100)
    print_stuck(stuck, out, 90)
    assert isinstance(out.file, io.StringIO)
    assert "\x1b" not in out.file.getvalue() + stuck_line(stuck)
    assert "load" in out.file.getvalue()


def test_the_situation_is_that_of_tasks_and_workers(tmp_path: Path) -> None:
    """Two checks of the same tasks are the same situation; none is another."""
    first = run_of(tmp_path / "a", [finding(10)], 12)
    second = run_of(tmp_path / "b", [finding(20)], 22)
    assert situation(first) == situation(second) != situation(None)


def test_a_place_has_the_users_lines_and_what_they_called() -> None:
    """Of a stack that waits in libraries, the outer call and the innermost function are shown."""
    frames = [
        "main (/me/job.py:3)",
        "process (/me/job.py:12)",
        "__enter__ (/v/site-packages/distributed/semaphore.py:529)",
        "acquire (/v/site-packages/distributed/lock.py:84)",
        "wait (/usr/lib/python3.11/threading.py:331)",
    ]
    assert place_in("\n".join(frames)) == (
        "wait (threading.py:331) ← __enter__ (semaphore.py:529) ← process (job.py:12) ← "
        "main (job.py:3)"
    )
    assert place_in("(left out)") == place_in(None) == ""
