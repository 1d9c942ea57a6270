"""A run of a thousand workers: write its segments in turn, open and check it, compact it, and
open and check it again.

The cluster is simulated. The recorder's own encoder writes the segments, one frame per flush, and
the commands that read them are the real ones.

    python benchmarks/thousand.py --workers 1000 --tasks 1000
    python benchmarks/thousand.py --workers 20 --tasks 100          # to test the program
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from reading import measured, read, table

from dask_strata.store.manifest import SEGMENTS, SUFFIX, Manifest
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch, Encoder

T0 = 1_750_000_000_000_000_000
SECOND = 1_000_000_000
#: Tasks of a worker in one frame: those of one flush interval.
TASKS_PER_FRAME = 10
TASK_NS = SECOND // 100


class Writer:
    """Writer of the segment of one process."""

    def __init__(
        self, segments: Path, process: str, role: str, number: int, run_id: str = "thousand"
    ) -> None:
        header = {"role": role, "run": run_id, "sample_interval_seconds": 0.5}
        self._encoder = Encoder(process, {**header, "host": f"node{number:04}", "pid": 1})
        self._file = (segments / f"{process}{SUFFIX}").open("wb")
        self._file.write(self._encoder.header())

    def put(self, *batches: Batch) -> None:
        self._file.write(self._encoder.frame([b for b in batches if b.n]))

    def flush(self) -> None:
        self._file.flush()

    def end(self) -> None:
        self.put(Batch.of_rows("processes", [{"stop": T0 + 10**12, "exit_reason": "closed"}]))
        self._file.close()


def process_row(role: str, number: int, address: str) -> Batch:
    row = {"role": role, "host": f"node{number:04}", "pid": 1, "start": T0, "address": address}
    return Batch.of_rows("processes", [{**row, "name": str(number), "transport": "file"}])


def counted(name: str, rows: int) -> Batch:
    row = {"time": T0 + 10**12, "name": name, "value": rows, "recorded": rows, "final": True}
    return Batch.of_rows("counters", [row])


def address(number: int) -> str:
    return f"tcp://10.1.{number // 250}.{number % 250 + 1}:40000"


def keys_of(worker: int, first: int, n: int) -> list[str]:
    """Return keys like those of `client.map`."""
    return [f"process-{worker:08x}{task:024x}" for task in range(first, first + n)]


WORKER_TRANSITIONS = (
    ("released", "waiting"),
    ("waiting", "ready"),
    ("ready", "executing"),
    ("executing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)
SCHEDULER_TRANSITIONS = (
    ("released", "waiting"),
    ("waiting", "processing"),
    ("processing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)


def worker_frame(number: int, first: int, n: int) -> list[Batch]:
    """Return the rows of a worker for some tasks: transitions and executions."""
    keys = keys_of(number, first, n)
    began = T0 + first * TASK_NS
    transitions = [(i, *states) for i in range(n) for states in WORKER_TRANSITIONS]
    executions = [
        {
            "execution": first + i,
            "worker": address(number),
            "key": key,
            "start": began + i * TASK_NS,
            "stop": began + (i + 1) * TASK_NS,
            "thread": 140_000_000_000_000,
            "kind": "thread",
            "outcome": "finished",
            "cpu_seconds": 0.009 + i / 1e6,
            "read_bytes": 4096,
            "minor_faults": i,
            "rss_after_bytes": 150_000_000 + 4096 * i,
        }
        for i, key in enumerate(keys)
    ]
    return [
        Batch(
            "worker_transitions",
            len(transitions),
            {
                "time": [began + i * TASK_NS for i, _, _ in transitions],
                "worker": address(number),
                "key": [keys[i] for i, _, _ in transitions],
                "start_state": [start for _, start, _ in transitions],
                "wanted_state": [finish for _, _, finish in transitions],
                "finish_state": [finish for _, _, finish in transitions],
                "stimulus_id": [f"compute-task-{began + i}" for i, _, _ in transitions],
            },
        ),
        Batch.of_rows("executions", executions),
    ]


def scheduler_frame(workers: int, first: int, n: int) -> list[Batch]:
    """Return the rows of the scheduler for the same tasks of all workers."""
    tasks = [(w, i, key) for w in range(workers) for i, key in enumerate(keys_of(w, first, n))]
    began = T0 + first * TASK_NS
    transitions = [(w, i, key, *states) for w, i, key in tasks for states in SCHEDULER_TRANSITIONS]
    columns: dict = {name: Sparse() for name in ("worker", "thread", "nbytes", "startstops")}
    for row, (w, i, _, start, finish) in enumerate(transitions):
        if "processing" in (start, finish):
            columns["worker"].put(row, address(w))
        if start == "processing":
            columns["thread"].put(row, 140_000_000_000_000)
            columns["nbytes"].put(row, 1000 + i)
            columns["startstops"].put(row, [["compute", began + i * TASK_NS, TASK_NS, None]])
    graph = Batch(
        "graph_tasks",
        len(tasks),
        {
            "submission": f"thousand-{first}",
            "key": [key for _, _, key in tasks],
            "prefix": "process",
            "group": "process",
            "function": "analysis.process",
            "requested": [True] * len(tasks),
            "definition_bytes": [500] * len(tasks),
        },
    )
    return [
        graph,
        Batch(
            "scheduler_transitions",
            len(transitions),
            {
                "time": [began + i * TASK_NS for _, i, *_ in transitions],
                "key": [key for _, _, key, _, _ in transitions],
                "start_state": [start for *_, start, _ in transitions],
                "finish_state": [finish for *_, finish in transitions],
                "stimulus_id": [f"task-finished-{began + i}" for _, i, *_ in transitions],
                **columns,
            },
        ),
    ]


def write(folder: Path, workers: int, tasks: int, run_id: str = "thousand") -> Path:
    """Write the run; return its folder."""
    run = folder / run_id
    Manifest(run_id, run_id, T0, "0").write(run)
    segments = run / SEGMENTS
    scheduler = Writer(segments, "scheduler-0", "scheduler", 0, run_id)
    scheduler.put(process_row("scheduler", 0, "tcp://10.1.9.9:8786"))
    present = [
        {"time": T0, "worker": address(w), "name": str(w), "action": "add"} for w in range(workers)
    ]
    scheduler.put(Batch.of_rows("worker_events", present))
    for first in range(0, tasks, TASKS_PER_FRAME):
        scheduler.put(*scheduler_frame(workers, first, min(TASKS_PER_FRAME, tasks - first)))
    scheduler.put(counted("scheduler.transitions", len(SCHEDULER_TRANSITIONS) * workers * tasks))
    scheduler.end()
    for number in range(workers):
        worker = Writer(segments, f"worker-{number:04}", "worker", number, run_id)
        worker.put(process_row("worker", number, address(number)))
        for first in range(0, tasks, TASKS_PER_FRAME):
            worker.put(*worker_frame(number, first, min(TASKS_PER_FRAME, tasks - first)))
        worker.put(counted("worker.transitions", len(WORKER_TRANSITIONS) * tasks))
        worker.end()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1000, help="tasks per worker")
    parser.add_argument("--keep", type=Path, help="folder to keep the run in")
    parser.add_argument("--results", type=Path, help="folder for thousand.md and thousand.json")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="strata-thousand-") as scratch:
        folder = options.keep or Path(scratch)
        began = time.perf_counter()
        run = write(folder, options.workers, options.tasks)
        print(f"written in {time.perf_counter() - began:.0f} s", flush=True)
        before = read(run, Path(scratch))
        compacted = measured(["compact", str(run)])
        after = read(run, Path(scratch))
    text = "\n".join(
        [
            "# A run of many workers",
            "",
            (
                f"`benchmarks/thousand.py`: {options.workers:,} simulated workers with "
                f"{options.tasks:,} tasks each,"
            ),
            f"load {os.getloadavg()[0]:.1f} at the end. As it was recorded:",
            "",
            *table(before),
            "",
            (
                f"Compacting: {compacted['seconds']:.0f} s, {compacted['cpu']:.0f} s of CPU, "
                f"{compacted['peak'] / 1e6:.0f} MB. Then:"
            ),
            "",
            *table(after),
            "",
        ]
    )
    print(text)
    if options.results:
        facts = {"segments": before, "compact": compacted, "parquet": after}
        (options.results / "thousand.md").write_text(text, encoding="utf-8")
        (options.results / "thousand.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
