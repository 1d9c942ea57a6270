"""Insights that cost no time, failures and what they have in common, rules of other packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.analysis.diagnosis import Insight
from tests.support.synthetic import SECOND, T0, Process, life, moves, new_run, small_run

U, V, W = "tcp://u:1", "tcp://v:1", "tcp://w:1"


def insights(folder: Path) -> dict[str, Insight]:
    """Return the insights of a run by cause."""
    return {insight.cause: insight for insight in open_run(folder).insights()}


def one_task(folder: Path, workers: dict[str, dict[str, Any]], **client: Any) -> Path:
    """Make a run of one task, with facts of its workers, and rows of a client by table."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", host="one")
    added = [{"time": T0, "worker": w, "name": w[6], "action": "add"} for w in workers]
    scheduler.write("worker_events", added)
    scheduler.write("scheduler_transitions", life("a-1", 3, 5, next(iter(workers))))
    scheduler.write("packages", [{"name": "numpy", "version": "2.0"}])
    scheduler.end()
    for n, (address, facts) in enumerate(workers.items()):
        process = Process(folder, f"worker-{n}", address=address, name=address[6], nthreads=1)
        for table, rows in facts.items():
            process.write(table, rows)
        process.end()
    if client:
        process = Process(folder, "client-1")
        for table, rows in client.items():
            process.write(table, rows)
        process.end()
    return folder


def offset(seconds: float) -> list[dict[str, Any]]:
    """Return the measurement of a clock."""
    return [{"time": T0, "offset_seconds": seconds, "uncertainty_seconds": 0.001}]


def test_clocks_that_are_apart(tmp_path: Path) -> None:
    """The clock that is furthest is named; one within 0.5 s is as good as right."""
    workers = {V: {"clock_offsets": offset(-3.25)}, W: {"clock_offsets": offset(0.75)}}
    found = insights(one_task(tmp_path / "apart", workers))["clocks-apart"]
    assert "worker-0 differs from the scheduler's by 3.25 s" in found.text
    assert found.evidence.startswith("2 of the recorded processes")
    near = {V: {"clock_offsets": offset(0.25)}}
    assert "clocks-apart" not in insights(one_task(tmp_path / "near", near))


def test_versions_that_differ(tmp_path: Path) -> None:
    """The package and its versions are named."""
    workers = {W: {"packages": [{"name": "numpy", "version": "1.26"}]}}
    found = insights(one_task(tmp_path / "r", workers))["different-versions"]
    assert "different versions of numpy: 1.26 (1), 2.0 (1)" in found.text
    same = {W: {"packages": [{"name": "numpy", "version": "2.0"}]}}
    assert "different-versions" not in insights(one_task(tmp_path / "same", same))


def test_a_large_scatter(tmp_path: Path) -> None:
    """Its bytes and seconds, until the first graph."""
    call = {"start": T0 + SECOND // 2, "stop": T0 + 5 * SECOND // 2, "kind": "scatter"}
    call |= {"n_keys": 1, "nbytes": 200_000_000, "file": "/home/me/load.py", "line": 7}
    sent = {"began": T0 + 26 * SECOND // 10, "time": T0 + 27 * SECOND // 10, "first_key": "a-1"}
    rows = {"client_calls": [call], "client_submissions": [sent]}
    found = insights(one_task(tmp_path / "r", {W: {}}, **rows))["large-scatter"]
    assert found.seconds == pytest.approx(2)
    assert "191 MiB" in found.text
    assert "load.py:7" in found.text


def failed(folder: Path, failures: list[tuple[str, str]], files: dict[str, str]) -> Insight:
    """Return the insight of tasks that failed on workers U and V of a host, or W of another.

    Parameters
    ----------
    folder : Path
        The run's folder.
    failures : list of (str, str)
        Keys of failed tasks, and their workers.
    files : dict
        Input files of tasks by key.
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    added = [{"time": T0, "worker": w, "name": w[6], "action": "add"} for w in (U, V, W)]
    scheduler.write("worker_events", added)
    rows = []
    for key, worker in failures:
        steps = (1, "released", "waiting"), (2, "waiting", "processing")
        failure = {"worker": worker, "exception": "ValueError('odd')", "blame": key}
        rows += moves(key, *steps, (3, "processing", "erred"), **failure)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.write("graph_tasks", [{"key": k, "prefix": "read"} for k, _ in failures])
    claimed = [{"key": key, "uri": uri} for key, uri in files.items()]
    scheduler.write("claimed_inputs", claimed)
    scheduler.end()
    for n, (worker, host) in enumerate(((U, "east"), (V, "east"), (W, "west"))):
        Process(folder, f"worker-{n}", address=worker, name=worker[6], host=host, nthreads=2).end()
    return insights(folder)["exception"]


def test_failures_that_have_a_worker_a_host_or_a_file_in_common(tmp_path: Path) -> None:
    """Each is stated if it is so for all of them, and not if it is not."""
    keys = ["read-1", "read-2"]
    same = dict.fromkeys(keys, "/data/bad.csv")
    one = failed(tmp_path / "one", [(key, V) for key in keys], same)
    assert "ValueError: odd" in one.text
    assert "(2 tasks)" in one.text
    assert "on 1 worker (only v)" in one.evidence
    assert "all with /data/bad.csv" in one.evidence
    host = failed(tmp_path / "host", [("read-1", U), ("read-2", V)], same)
    assert "on 2 workers, all on host east" in host.evidence
    different = {"read-1": "/data/a.csv", "read-2": "/data/b.csv"}
    two = failed(tmp_path / "two", [("read-1", V), ("read-2", W)], different)
    assert "on 2 workers" in two.evidence
    assert "all on host" not in two.evidence
    assert "all with" not in two.evidence


RULES = """
from dask_strata.analysis.diagnosis.claims import Finding

def compute(evidence):
    yield Finding("too-warm", "it computed", always=True, claims=evidence.where("compute"))

def broken(evidence):
    yield Finding("never", "this is lost", always=True)
    raise KeyError("no such thing")
"""


def test_rules_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package adds rules; one that fails is named, and hides no other insight."""
    site = tmp_path / "site"
    metadata = site / "warm_rules-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "warm_rules.py").write_text(RULES)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: warm-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[dask_strata.insights]\nwarm = warm_rules:compute\nbroken = warm_rules:broken\n"
        "missing = warm_rules:nothing\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    run = open_run(small_run(tmp_path / "r"))
    found = run.insights()
    [own] = [insight for insight in found if insight.cause == "too-warm"]
    ours = sum(i.seconds or 0.0 for i in found if i.cause != "too-warm")
    assert (own.seconds or 0.0) + ours <= run.critical_path().makespan_seconds + 1e-9
    assert own.docs == ""
    texts = sorted(insight.text for insight in found if insight.cause == "failed-rule")
    assert len(texts) == 2
    assert "broken of another package failed: KeyError" in texts[0]
    assert "missing of another package failed: AttributeError" in texts[1]
