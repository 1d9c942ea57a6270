"""Synthetic runs with one worker, for the tests of the analysis."""

from __future__ import annotations

from pathlib import Path

from tests.support.synthetic import SECOND, T0, Process, new_run

W = "tcp://w:1"


def one_worker(folder: Path, rows: list[dict], *, nthreads: int = 2) -> Path:
    """Make a run of 10 s with one worker, from the scheduler's transitions alone."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write("worker_events", [{"time": T0, "worker": W, "name": "w", "action": "add"}])
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=W, name="w", nthreads=nthreads).end()
    return folder


def intervals(*parts: tuple[str, float, float]) -> list[list]:
    """Return startstops: action, from, to in seconds."""
    return [[action, T0 + int(a * SECOND), int((b - a) * SECOND), None] for action, a, b in parts]
