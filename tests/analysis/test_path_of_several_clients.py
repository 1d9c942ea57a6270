"""Critical paths of runs in which several clients share a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.critical_path.walk import critical_path
from tests.support.synthetic import SECOND, T0, Process, life, new_run

A, B = "Client-a", "Client-b"
V, W = "tcp://v:1", "tcp://w:1"


def at(seconds: float) -> int:
    """Return a time in ns since the epoch."""
    return T0 + int(seconds * SECOND)


def interval(start: float, stop: float, **values: Any) -> dict[str, Any]:
    """Return a row with an interval."""
    return {"start": at(start), "stop": at(stop), **values}


def run_of_two(folder: Path, *, known: bool) -> Run:
    """Make a run whose path has client A's tasks a-1 (1 s to 2 s) and a-2 (6 s to 7 s).

    A sends the graph of a-2 from 5.5 s to 5.8 s. Meanwhile B scatters, builds a graph for b-1,
    which runs from 5.6 s to 6.5 s, and gathers until 9 s. Unless they are known, the record does
    not have the clients of the tasks.
    """
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    added = [{"time": T0, "worker": w, "name": w, "action": "add"} for w in (V, W)]
    scheduler.write("worker_events", added)
    lives = life("a-1", 1.1, 2, W), life("a-2", 6.1, 7, W), life("b-1", 5.7, 6.5, V)
    rows = sorted((row for each in lives for row in each), key=lambda row: row["time"])
    scheduler.write("scheduler_transitions", rows)
    graphs = [("a-1", A, 1), ("b-1", B, 5.6), ("a-2", A, 6)]
    scheduler.write(
        "submissions",
        [{"submission": key, "client": client, "time": at(t)} for key, client, t in graphs],
    )
    submission = {key: {"submission": key} if known else {} for key, *_ in graphs}
    scheduler.write(
        "graph_tasks", [{"key": key, "prefix": key[0], **submission[key]} for key, *_ in graphs]
    )
    scheduler.end()
    mine, other = Process(folder, "client-1"), Process(folder, "client-2")
    sent = {"began": at(5.5), "time": at(5.8), "client": A, "first_key": "a-2"}
    mine.write("client_submissions", [sent])
    sent = {"began": at(5.4), "time": at(5.5), "client": B, "first_key": "b-1"}
    other.write("client_submissions", [sent])
    other.write("client_samples", [interval(3, 5.6, client=B, calls="dask/optimization.py")])
    calls = [interval(2, 3, kind="scatter"), interval(7, 9, kind="gather")]
    other.write("client_calls", [{**call, "client": B} for call in calls])
    mine.write("client_calls", [interval(7, 7.5, client=A, kind="gather")])
    for number, worker in enumerate((V, W)):
        Process(folder, f"worker-{number}", address=worker, name=worker, nthreads=1).end()
    return open_run(folder)


def test_the_path_of_one_client_has_no_calls_of_another(tmp_path: Path) -> None:
    """While only B was busy, nothing was submitted; the path ends when A has its result."""
    path = critical_path(run_of_two(tmp_path / "r", known=True))
    seconds = {"graph": 0.5, "nothing submitted": 3.5, "gather": 0.5}
    spent = {cause: path.seconds.get(cause) for cause in (*seconds, "scatter")}
    assert spent == {**{c: pytest.approx(s) for c, s in seconds.items()}, "scatter": None}


def test_calls_of_all_clients_count_where_the_client_is_unknown(tmp_path: Path) -> None:
    """A task without a submission on record may be of any client."""
    path = critical_path(run_of_two(tmp_path / "r", known=False))
    seconds = {"graph": 3, "scatter": 1, "gather": 2}
    spent = {cause: path.seconds.get(cause) for cause in (*seconds, "nothing submitted")}
    assert spent == {**{c: pytest.approx(s) for c, s in seconds.items()}, "nothing submitted": None}


def test_the_path_begins_with_the_scatter_for_the_first_graph(tmp_path: Path) -> None:
    """Data that were scattered were no task that waited since the recording began."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    rows = life("a-1", 3.1, 4, W)
    forgotten = {"time": at(4.5), "start_state": "memory", "finish_state": "forgotten"}
    rows.append({**forgotten, "key": "ndarray-1", "stimulus_id": "client-releases-keys-1"})
    scheduler.write("scheduler_transitions", rows)
    scheduler.write("submissions", [{"submission": "a-1", "client": A, "time": at(3)}])
    scheduler.write("graph_tasks", [{"key": "a-1", "prefix": "a", "submission": "a-1"}])
    scheduler.end()
    client = Process(folder, "client-1")
    sent = {"began": at(2.9), "time": at(2.95), "client": A, "first_key": "a-1"}
    client.write("client_submissions", [sent])
    client.write("client_calls", [interval(1.5, 2.8, client=A, kind="scatter")])
    client.end()
    worker = Process(folder, "worker-1", address=W, name="w", nthreads=1)
    updated = {"time": at(2.7), "key": "ndarray-1", "start_state": "released"}
    updated |= {"finish_state": "memory", "stimulus_id": "update-data-1"}
    worker.write("worker_transitions", [updated])
    worker.end()
    path = critical_path(open_run(folder))
    assert path.segments[0].start == at(1.5)
    assert path.seconds["scatter"] == pytest.approx(1.3)
    assert path.makespan_seconds == pytest.approx(2.5)
