"""Findings of `check` on a synthetic run."""

from __future__ import annotations

import os
from pathlib import Path

from dask_strata import open_run
from dask_strata.analysis.check import WHOLE_FOR_TASKS
from dask_strata.analysis.check.check import Check, check
from dask_strata.analysis.check.finding import Finding
from tests.analysis.one_worker import W
from tests.support.synthetic import SECOND, T0, Process, life, new_run, small_run


def test_the_sentence_counts_the_processes_of_a_role() -> None:
    """`the`, `both` and `all` are said only where each process of the role was counted."""

    def sentence(counted: int, of: int) -> str:
        findings = [Finding("ok", f"worker-{i}", "", counted=True) for i in range(counted)]
        return Check(findings=tuple(findings), n_processes={"worker": of}).sentence.partition(
            " on "
        )[2]

    assert sentence(1, 1) == "the worker"
    assert sentence(2, 2) == "both workers"
    assert sentence(3, 3) == "all 3 workers"
    assert sentence(1, 3) == "1 of 3 workers"
    assert sentence(2, 3) == "2 of 3 workers"


def test_check_finds_each_kind_of_gap(tmp_path: Path) -> None:
    """Counters that disagree, losses, workers without a record and cuts are all named."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    scheduler.write("scheduler_transitions", life("a-1", 1, 2, W))
    scheduler.write("submissions", [{"time": T0, "submission": "s", "n_tasks": 9_000}])
    scheduler.write("graph_tasks", [{"submission": "s", "key": "a-1", "prefix": "a"}])
    scheduler.write("counters", [
        {"time": T0, "name": "scheduler.transitions", "value": 5, "recorded": 3, "final": True}
    ])  # fmt: skip
    scheduler.write("losses", [{"time": T0, "what": "rows", "count": 7, "reason": "disk full"}])
    os.utime(folder / "segments" / "scheduler-1.seg", (0, 0))
    found = check(open_run(folder))
    assert not found.ok
    text = "\n".join(f.text for f in found.missing)
    for part in (
        "counted 5",
        "3 are on record",
        "7 rows: disk full",
        W,
        "was killed",
        "8,999 of 9,000",
    ):
        assert part in text


def test_a_worker_without_a_record_and_without_tasks(tmp_path: Path) -> None:
    """Each task is complete, as long as it had none."""
    folder = small_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-2", address="tcp://s:1")
    event = {"time": T0 + 9 * SECOND, "worker": "tcp://w:2", "name": "x", "action": "add"}
    scheduler.write("worker_events", [event])
    scheduler.end()
    found = check(open_run(folder))
    assert found.grade == WHOLE_FOR_TASKS, found.missing
    assert [f.text for f in found.cut] == [
        "worker tcp://w:2 (x) has no record of its own; the scheduler recorded 0 attempts on it"
    ]


def test_without_the_schedulers_record_its_version_is_unknown(tmp_path: Path) -> None:
    """No process is noted as recorded by another version than a scheduler without a record."""
    folder = small_run(tmp_path / "r")
    Process(folder, "worker-2", address="tcp://w:2", dask_strata="0.1.0").end()
    for segment in (folder / "segments").glob("scheduler-*"):
        segment.unlink()
    texts = [finding.text for finding in check(open_run(folder)).findings]
    assert "has no record" in texts
    assert not [text for text in texts if "was recorded by" in text]
