"""Cost of further looks at a run that is being recorded: CPU seconds of this process.

A simulated run (`thousand.py`) has many tasks and no end. A look reads it; then 1,000 tasks are
appended, and a further look reads only what is new.

    python benchmarks/growing.py --tasks 1000000
    python benchmarks/growing.py --tasks 50000                      # to test the program
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import dask
from reading import SUMS
from thousand import (
    T0,
    TASKS_PER_FRAME,
    Writer,
    address,
    process_row,
    scheduler_frame,
    worker_frame,
)

from dask_strata import open_run
from dask_strata.analysis.overview.stored import summary_of
from dask_strata.run import Run
from dask_strata.store.manifest import SEGMENTS, Manifest
from dask_strata.store.segments.frames import Batch


class GrowingRun:
    """A simulated run that is not over."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self._tasks = folder, 0
        Manifest("thousand", "thousand", time.time_ns(), "0").write(folder)
        self._scheduler = Writer(folder / SEGMENTS, "scheduler-0", "scheduler", 0)
        self._scheduler.put(process_row("scheduler", 0, "tcp://10.1.9.9:8786"))
        self._workers = [
            Writer(folder / SEGMENTS, f"worker-{n:04}", "worker", n) for n in range(workers)
        ]
        added = []
        for number, worker in enumerate(self._workers):
            worker.put(process_row("worker", number, address(number)))
            added.append(
                {"time": T0, "worker": address(number), "name": str(number), "action": "add"}
            )
        self._scheduler.put(Batch.of_rows("worker_events", added))

    def grow(self, tasks: int, workers: int | None = None) -> None:
        """Append tasks of each worker, or of the first ones, in frames as a recorder would."""
        some = self._workers[:workers]
        for first in range(self._tasks, self._tasks + tasks, TASKS_PER_FRAME):
            n = min(TASKS_PER_FRAME, self._tasks + tasks - first)
            self._scheduler.put(*scheduler_frame(len(some), first, n))
            for number, worker in enumerate(some):
                worker.put(*worker_frame(number, first, n))
        self._tasks += tasks
        for each in (self._scheduler, *self._workers):
            each.flush()


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def look(run: Run) -> dict[str, float]:
    """Return the CPU seconds of a look: reading, a query over all tasks, the summary."""
    found = {}
    began = cpu()
    run.refresh()
    found["read"] = cpu() - began
    began = cpu()
    answer = run.sql(SUMS).to_arrow().to_pylist()
    found["query"] = cpu() - began
    print(f"  {answer}", flush=True)
    began = cpu()
    run.refresh()
    summary = summary_of(run)
    found["summary"] = cpu() - began
    print(f"  {summary.n_tasks:,} tasks; CPU seconds: {found}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--results", type=Path, help="folder for growing.json")
    options = parser.parse_args()
    workers = min(1000, max(2, options.tasks // 1000))
    with tempfile.TemporaryDirectory(prefix="strata-growing-") as scratch:
        dask.config.set({"dask_strata.cache": f"{scratch}/cache"})
        growing = GrowingRun(Path(scratch) / "run", workers)
        growing.grow(options.tasks // workers)
        run = open_run(growing.folder)
        found = {"first": look(run)}
        for number in (2, 3):
            growing.grow(10, workers=min(100, workers))
            found[f"look {number}, 1,000 more tasks"] = look(run)
        found["the same in a new process"] = look(open_run(growing.folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"peak_mb": peak, **found}, indent=1))
    if options.results:
        (options.results / "growing.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
