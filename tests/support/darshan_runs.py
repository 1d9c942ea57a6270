"""Runs that match the recorded Darshan logs, and a small run with a log of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dask_strata import open_run
from dask_strata.run import Run
from dask_strata.store.manifest import Manifest
from tests.support.darshan_files import SECOND, Log, Operation, TracedFile
from tests.support.synthetic import T0, Process, new_run

DATA = Path(__file__).parent.parent / "data" / "darshan"
LAYOUTS = ("dxt_v2_threads", "dxt_v1_release")


def ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return round(seconds * 1e9)


def logs(layout: str) -> Path:
    """Return the folder of the logs."""
    return DATA / layout / "logs"


def truth(layout: str) -> dict[str, dict[str, Any]]:
    """Return the facts that each task recorded about itself, by key."""
    noted = json.loads((DATA / layout / "truth_per_task.json").read_text())["results"]
    return {key: facts for key, facts in noted.items() if facts.get("pid")}


def notes(layout: str, pid: int) -> list[dict[str, Any]]:
    """Return the notes of a worker: beacons, and starts of tasks."""
    text = (DATA / layout / f"workerlog_{pid}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def darshan_run(
    folder: Path, layout: str = "dxt_v2_threads", *, measured: bool = True, pids: bool = True
) -> Path:
    """Make the run to which the recorded logs belong.

    ``measured``: whether executions were measured in their threads. ``pids``: whether the run
    contains the pids of the processes.
    """
    events = [json.loads(line) for line in (DATA / layout / "tasks.jsonl").read_text().splitlines()]
    first, last = events[0]["t"], events[-1]["t"]
    Manifest("darshan", layout, ns(first), "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", host="vm", start=ns(first))
    for event in events:
        if event["ev"] != "transition":
            scheduler.write("worker_events", [_worker_event(event)])
    # The notes contain only ends of tasks; assume that each began 1 ms before its first interval.
    ends = [e for e in events if e["ev"] == "transition" and e["finish"] == "memory"]
    transitions = []
    for event in ends:
        begin = min(s["start"] for s in event["startstops"]) - 0.001
        transitions += [
            _transition(event, begin, "released", "waiting"),
            _transition(event, begin, "waiting", "processing"),
            _end(event),
        ]
    transitions.sort(key=lambda row: row["time"])
    scheduler.write("scheduler_transitions", transitions)
    scheduler.end(at=ns(last))
    for event in events:
        if event["ev"] == "add_worker":
            _worker(folder, layout, event, ns(last), measured=measured, pids=pids)
    return folder


def _worker_event(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "time": ns(event["t"]),
        "worker": event["worker"],
        "name": event.get("name"),
        "action": event["ev"].removesuffix("_worker"),
    }


def _transition(event: dict[str, Any], time: float, start: str, finish: str) -> dict[str, Any]:
    return {
        "time": ns(time),
        "key": event["key"],
        "start_state": start,
        "finish_state": finish,
        "prefix": event["key"].rpartition("-")[0],
        "stimulus_id": "s",
    }


def _end(event: dict[str, Any]) -> dict[str, Any]:
    return _transition(event, event["t"], "processing", "memory") | {
        "worker": event["worker"],
        "thread": event["thread"],
        "nbytes": event["nbytes"],
        "typename": event["typename"],
        "stimulus_id": event["stimulus_id"],
        "run_id": _number(event["key"]),
        "startstops": [
            [s["action"], ns(s["start"]), ns(s["stop"] - s["start"]), s.get("source")]
            for s in event["startstops"]
        ],
    }


def _number(key: str) -> int:
    return hash(key) & 0xFFFFFFFF


def _worker(  # noqa: PLR0913
    folder: Path, layout: str, event: dict[str, Any], last: int, *, measured: bool, pids: bool
) -> None:
    name = f"worker-{event['pid']}"
    facts = {"address": event["worker"], "name": event["name"], "nthreads": event["nthreads"]}
    pid = event["pid"] if pids else None
    worker = Process(folder, name, host="vm", pid=pid, start=ns(event["t"]), **facts)
    if measured:
        rows = [
            {
                "execution": number,
                "key": key,
                "worker": event["worker"],
                "run_id": _number(key),
                "thread": task["ident"],
                "kind": "thread",
                "start": ns(task["t0"]),
                "stop": ns(task["t1"]),
                "outcome": "finished",
                "read_bytes": task["io"]["rchar"],
                "write_bytes": task["io"]["wchar"],
                "read_calls": task["io"]["syscr"],
                "write_calls": task["io"]["syscw"],
            }
            for number, (key, task) in enumerate(truth(layout).items())
            if task["pid"] == event["pid"]
        ]
        worker.write("executions", rows)
    worker.end(at=last)


def one(run: Run, query: str) -> Any:
    """Return the only value in the result of a query."""
    (row,) = run.sql(query).to_arrow().to_pylist()
    return next(iter(row.values()))


def answers(run: Run, query: str) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    return run.sql(query).to_arrow().to_pylist()


def content(run: Path) -> dict[str, Any]:
    """Return the rows of the tables that an import of logs changes."""
    opened = open_run(run)
    names = ("darshan_logs", "darshan_counters", "darshan_segments", "imports", "tasks")
    left_out = {"imports": "exclude (process)"}  # differs between imports
    return {
        name: sorted(map(str, answers(opened, f"select * {left_out.get(name, '')} from {name}")))
        for name in names
    }


#: An hour in nanoseconds.
HOUR = 3600 * SECOND


def worker_of_tasks(run: Path, *, pid: int | None = 77) -> Path:
    """Make a run of one worker that executed ten tasks of half a second, one each second."""
    new_run(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    transitions, rows = [], []
    for i in range(10):
        begin = T0 + i * SECOND + i**2 * 10_000_000
        common = {"key": f"t-{i}", "prefix": "t", "stimulus_id": "s"}
        transitions += [
            common | {"time": begin, "start_state": "waiting", "finish_state": "processing"},
            common
            | {
                "time": begin + SECOND // 2,
                "start_state": "processing",
                "finish_state": "memory",
                "worker": "tcp://w:1",
                "thread": 7,
                "run_id": i,
            },
        ]
        rows.append(
            {
                "execution": i,
                "key": f"t-{i}",
                "worker": "tcp://w:1",
                "run_id": i,
                "thread": 7,
                "kind": "thread",
                "start": begin,
                "stop": begin + SECOND // 2,
                "outcome": "finished",
            }
        )
    scheduler.write("scheduler_transitions", transitions)
    scheduler.end(at=T0 + 20 * SECOND)
    worker = Process(run, "worker-1", address="tcp://w:1", name="w", host="vm", pid=pid)
    worker.write("executions", rows)
    worker.end(at=T0 + 20 * SECOND)
    return run


def log_of_tasks(off: int = 0, threads: tuple[int, ...] = (7,)) -> Log:
    """Return that worker's log with a clock that is `off` ns ahead: each task read three times."""
    ops = [
        Operation(j, 100, begin + j * 0.1, begin + j * 0.1 + 0.05, t)
        for i in range(10)
        for begin in [1 + i + i**2 * 0.01 + 0.1]
        for j in range(3)
        for t in threads
    ]
    first = Operation(0, 1, 0.0, 0.001, 1)  # the main thread, importing
    log = Log([TracedFile("/f", reads=[first, *ops])], jobid=77)
    log.start, log.stop = T0 + off - SECOND, T0 + off + 20 * SECOND
    return log


#: Name of the log of `worker_of_tasks`.
NAME = "u_python_id77-77_1-1-1-1_1.darshan"
