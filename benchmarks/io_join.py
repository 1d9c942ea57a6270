"""Cost of importing Darshan's traces and of joining them with tasks.

The program writes a run, and logs with the given number of traced operations by the threads of its
workers, four each. Then it imports the logs and attributes the operations to tasks.

    python benchmarks/io_join.py [OPERATIONS …]

CPU seconds are those of this process; PyDarshan reads counters in a child process, whose time has
its own column. Prints a table for `benchmarks/results/io_join.md`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.darshan_files import Log, TracedFile
from tests.support.synthetic import SECOND, T0, Process

from dask_strata import open_run
from dask_strata.importers.registry import add_files
from dask_strata.store.manifest import Manifest

THREADS = 4
PER_LOG = 50_000
PER_TASK = 100
FILES = 200


def write_log(folder: Path, number: int, n: int, seconds: float) -> None:
    """Write a log of n operations, spread over threads and files."""
    rng = np.random.default_rng(number)
    dtype = np.dtype([("o", "<i8"), ("l", "<i8"), ("a", "<f8"), ("b", "<f8"), ("t", "<u8")])
    files = [TracedFile(f"/data/{number}-{i}.bin") for i in range(FILES)]
    log = Log(files=files, start=T0, stop=T0 + int(seconds * SECOND), jobid=1000 + number)
    header = log.trace()
    size = len(header) // FILES
    trace = b""
    each = n // FILES
    for i in range(FILES):
        rows = np.zeros(each, dtype)
        rows["a"] = np.sort(rng.uniform(0.02, seconds, each))
        rows["b"] = rows["a"] + 1e-6
        rows["t"] = 1 + rng.integers(0, THREADS, each)
        rows["o"], rows["l"] = np.arange(each) * 4096, 4096
        record = bytearray(header[i * size : (i + 1) * size])
        record[-8:] = each.to_bytes(8, "little")
        trace += bytes(record) + rows.tobytes()
    log.others = {"DXT_POSIX": trace}
    name = f"u_python_id{1000 + number}-{1000 + number}_1-1-1-1_1.darshan"
    (folder / name).write_bytes(log.bytes())


def write_run(folder: Path, workers: int, seconds: float) -> int:
    """Write a run with tasks of 10 ms in each thread; return the number of tasks."""
    Manifest("bench", "bench", T0, "0").write(folder)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    steps = int(seconds / 0.01)
    n = 0
    moves, runs = [], []
    for worker in range(workers):
        address = f"tcp://w:{worker + 1}"
        for thread in range(1, THREADS + 1):
            for step in range(steps):
                begin = T0 + step * 10_000_000
                key = f"task-{n}"
                common = {"key": key, "prefix": "task", "stimulus_id": "s"}
                moves.append(
                    common | {"time": begin, "start_state": "waiting", "finish_state": "processing"}
                )
                moves.append(
                    common
                    | {
                        "time": begin + 9_500_000,
                        "start_state": "processing",
                        "finish_state": "memory",
                        "worker": address,
                        "thread": thread,
                        "run_id": n,
                    }
                )
                runs.append(
                    {
                        "execution": n,
                        "key": key,
                        "worker": address,
                        "run_id": n,
                        "thread": thread,
                        "kind": "thread",
                        "start": begin,
                        "stop": begin + 9_500_000,
                        "outcome": "finished",
                    }
                )
                n += 1
        process = Process(
            folder, f"worker-{1000 + worker}", address=address, host="vm", pid=1000 + worker
        )
        process.write("executions", runs)
        process.end(at=T0 + int(seconds * SECOND))
        runs = []
    moves.sort(key=lambda row: row["time"])
    for i in range(0, len(moves), 50_000):
        scheduler.write("scheduler_transitions", moves[i : i + 50_000])
    scheduler.end(at=T0 + int(seconds * SECOND))
    return n


def cpu(who: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measure(operations: int) -> str:
    logs = max(1, operations // PER_LOG)
    each = operations // logs
    seconds = max(1.0, each / THREADS / PER_TASK * 0.01)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = write_run(folder / "run", logs, seconds)
        (folder / "logs").mkdir()
        for number in range(logs):
            write_log(folder / "logs", number, each, seconds)
        size = sum(f.stat().st_size for f in (folder / "logs").iterdir())
        open_run(folder / "run").rows(
            "select count(*) from attempts"
        )  # load DuckDB and compute the tasks before the measurement
        before, child, wall = cpu(), cpu(resource.RUSAGE_CHILDREN), time.perf_counter()
        added = add_files(folder / "run", [folder / "logs"])
        imported = cpu() - before
        children = cpu(resource.RUSAGE_CHILDREN) - child
        wall = time.perf_counter() - wall
        assert added.rows >= operations - logs * FILES, added
        run = open_run(folder / "run")
        run.rows("select count(*) from attempts")
        before, joining = cpu(), time.perf_counter()
        found = run.rows("select attributed_by, count(*) as n from io_segments group by 1")
        joined, joining = cpu() - before, time.perf_counter() - joining
        before = cpu()
        run["io_segments"].to_arrow()
        fetched = cpu() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    by = {row["attributed_by"]: row["n"] for row in found}
    thread = by.get("thread", 0) / sum(by.values())
    return (
        f"| {operations:,} | {logs} | {tasks:,} | {size / 2**20:.1f} | {imported:.2f} "
        f"| {children:.2f} | {wall:.2f} | {joined:.2f} | {joining:.2f} | {fetched:.2f} "
        f"| {thread:.1%} | {peak:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operations", type=int, nargs="*", default=[100_000, 1_000_000])
    sizes = parser.parse_args().operations
    print(
        "| operations | logs | tasks | MiB | import CPU s | child CPU s | import s | join CPU s "
        "| join s | fetch CPU s | by thread | peak MiB |"
    )
    print("|---" * 12 + "|")
    for size in sizes:
        print(measure(size), flush=True)


if __name__ == "__main__":
    main()
