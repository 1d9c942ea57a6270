"""The runs that the recorded logs of Darshan are of, made of what was noted beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dask_strata.store.manifest import Manifest
from tests.support.synthetic import Process

DATA = Path(__file__).parent.parent / "data" / "darshan"
LAYOUTS = ("dxt_v2_threads", "dxt_v1_release")


def ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return round(seconds * 1e9)


def logs(layout: str) -> Path:
    """Return the folder of the logs."""
    return DATA / layout / "logs"


def truth(layout: str) -> dict[str, dict[str, Any]]:
    """Return what each task noted of itself, by key."""
    noted = json.loads((DATA / layout / "truth_per_task.json").read_text())["results"]
    return {key: facts for key, facts in noted.items() if facts.get("pid")}


def notes(layout: str, pid: int) -> list[dict[str, Any]]:
    """Return what a worker noted: beacons, beginnings of tasks."""
    text = (DATA / layout / f"workerlog_{pid}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def darshan_run(
    folder: Path, layout: str = "dxt_v2_threads", *, measured: bool = True, pids: bool = True
) -> Path:
    """Make the run that logs are of.

    ``measured``: whether runs of tasks were measured in their threads. ``pids``: whether the
    processes are known by their pids.
    """
    events = [json.loads(line) for line in (DATA / layout / "tasks.jsonl").read_text().splitlines()]
    first, last = events[0]["t"], events[-1]["t"]
    Manifest("darshan", layout, ns(first), "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1", host="vm", start=ns(first))
    for event in events:
        if event["ev"] != "transition":
            scheduler.write("worker_events", [_worker_event(event)])
    # Only ends of tasks were noted; they began somewhat before.
    ends = [e for e in events if e["ev"] == "transition" and e["finish"] == "memory"]
    moves = []
    for event in ends:
        begin = min(s["start"] for s in event["startstops"]) - 0.001
        moves += [
            _move(event, begin, "released", "waiting"),
            _move(event, begin, "waiting", "processing"),
            _end(event),
        ]
    moves.sort(key=lambda row: row["time"])
    scheduler.write("scheduler_transitions", moves)
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


def _move(event: dict[str, Any], time: float, start: str, finish: str) -> dict[str, Any]:
    return {
        "time": ns(time),
        "key": event["key"],
        "start_state": start,
        "finish_state": finish,
        "prefix": event["key"].rpartition("-")[0],
        "stimulus_id": "s",
    }


def _end(event: dict[str, Any]) -> dict[str, Any]:
    return _move(event, event["t"], "processing", "memory") | {
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
