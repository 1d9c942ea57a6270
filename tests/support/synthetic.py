"""Synthetic runs: tests choose every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dask_strata import open_run
from dask_strata.schema import RECORDED
from dask_strata.store.manifest import SEGMENTS, SUFFIX, Manifest
from dask_strata.store.segments.frames import Batch, Encoder
from dask_strata.store.sinks import FileSink

SECOND = 1_000_000_000
T0 = 1_795_000_000 * SECOND


class Process:
    """One process of a synthetic run: a frame for each call of `write`."""

    def __init__(self, folder: Path, name: str, /, **facts: Any) -> None:
        run_id = Manifest.read(folder).run_id
        self.encoder = Encoder(name, {"role": name.partition("-")[0], "run": run_id, "pid": 0})
        self.sink = FileSink(folder / SEGMENTS / f"{name}{SUFFIX}", self.encoder.header())
        self.write(
            "processes",
            [{"role": name.partition("-")[0], "host": "elsewhere", "start": T0, **facts}],
        )

    def write(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Write rows of one table as a frame."""
        self.sink.write(self.encoder.frame([Batch.of_rows(table, rows)]), len(rows))

    def end(self, reason: str = "closed", at: int = T0 + 10 * SECOND) -> None:
        """Write the last row, with the reason and time of the end, and close the segment."""
        self.write("processes", [{"stop": at, "exit_reason": reason}])
        self.sink.close()


def new_run(folder: Path) -> Path:
    """Make an empty run."""
    Manifest("synth", "synthetic", T0, "0").write(folder)
    return folder


def contents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all recorded tables of a run, in the order of their processes."""
    run = open_run(folder)
    return {
        name: sorted(
            run[name].to_arrow().to_pylist(), key=lambda r: (r["process"] or "", r.get("seq") or 0)
        )
        for name in RECORDED
    }


def moves(key: str, *steps: tuple[float, str, str], **details: Any) -> list[dict[str, Any]]:
    """Return transitions of a key, each a time in seconds, a start and a finish state.

    The details are further columns of the last transition.
    """
    rows = [
        {
            "time": T0 + int(t * SECOND),
            "key": key,
            "start_state": a,
            "finish_state": b,
            "stimulus_id": f"s-{t}",
        }
        for t, a, b in steps
    ]
    rows[-1].update(details)
    return rows


def life(key: str, start: float, stop: float, worker: str, **details: Any) -> list[dict[str, Any]]:
    """Return the transitions of a task that computed from start to stop on a worker."""
    a, b = T0 + int(start * SECOND), T0 + int(stop * SECOND)
    return moves(
        key,
        (start - 0.1, "released", "waiting"),
        (start, "waiting", "processing"),
        (stop, "processing", "memory"),
        worker=worker,
        thread=1,
        nbytes=8,
        typename="int",
        startstops=[["compute", a, b - a, None]],
        **details,
    )


def small_run(folder: Path) -> Path:
    """Make a complete run of 10 s: one worker with two threads, and two tasks of 4 s each."""
    new_run(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    scheduler.write(
        "worker_events",
        [{"time": T0, "worker": "tcp://w:1", "name": "w", "action": "add", "reason": "2 threads"}],
    )
    rows = life("a-1", 1, 5, "tcp://w:1") + life("b-1", 2, 6, "tcp://w:1")
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.write(
        "counters",
        [{"time": T0, "name": "scheduler.transitions", "value": 6, "recorded": 6, "final": True}],
    )
    scheduler.end()
    worker = Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=2)
    worker.end()
    return folder
