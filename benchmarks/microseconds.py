"""CPU time of each part of recording, measured alone, in microseconds.

A real cluster in this process is recorded while the recorders' threads sleep. Then this thread
requests the rows of each source, and times each part. The program also times the code around each
task in the worker's thread, and its system calls. Each result is the minimum of several
repetitions, with warm caches: in a busy worker the same code takes longer. `overhead.py` measures
the total in real clusters.

    python benchmarks/microseconds.py --tasks 5000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
ROUNDS = 2_000
#: Tasks in one flush interval.
TASKS_PER_FLUSH = 50


def cpu(action: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread for an action."""
    before = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - before) / 1e9


def each(action: Callable[[], object]) -> float:
    """Return the minimum CPU time of one call, in microseconds."""

    def rounds() -> None:
        for _ in range(ROUNDS):
            action()

    def nothing() -> None:
        pass

    def empty() -> None:
        for _ in range(ROUNDS):
            nothing()

    call = min(cpu(empty) for _ in range(REPEATS))
    return (min(cpu(rounds) for _ in range(REPEATS)) - call) * 1e6 / ROUNDS


def kernel() -> dict[str, float]:
    """Return the cost of the resource samples around one task, and of each of their parts."""
    import resource

    from dask_strata.recorder.pipeline import resource_usage

    fds = [os.open(f"/proc/{f}", os.O_RDONLY) for f in ("thread-self/io", "self/statm")]
    found = {
        "both samples": each(lambda: (resource_usage.begin(), resource_usage.end())),
        "of these, one read of /proc/thread-self/io": each(lambda: os.pread(fds[0], 512, 0)),
        "one read of /proc/self/statm": each(lambda: os.pread(fds[1], 512, 0)),
        "one getrusage": each(lambda: resource.getrusage(resource.RUSAGE_THREAD)),
        "one thread_time and process_time": each(lambda: (time.thread_time(), time.process_time())),
    }
    for fd in fds:
        os.close(fd)
    return found


def around() -> float:
    """Return the microseconds that recording adds to one execution, its samples included."""
    import distributed.worker
    from dask._task_spec import Task

    from dask_strata.recorder.sources.executions import ExecutionHook

    class FakeWorker:
        """Stand-in for a worker, with what the hook reads."""

        active_threads: ClassVar[dict[int, str]] = {}
        executors: ClassVar[dict[str, object]] = {}

    worker, lock = FakeWorker(), threading.Lock()
    task = Task("key", abs, -1)

    def execute() -> None:
        distributed.worker._run_task(task, {}, {"worker": worker}, "key", {}, lock, 0.0)  # noqa: SLF001

    plain = each(execute)
    hook = ExecutionHook(worker, "tcp://127.0.0.1:1", opens=True)
    try:
        return each(execute) - plain
    finally:
        hook.remove()


def sources(tasks: int) -> dict[str, dict[str, float]]:
    """Return the cost per task of each table, by role: to collect its rows, and to encode them."""
    from distributed import Client, LocalCluster

    import dask_strata
    from dask_strata.flushing import recorders as running

    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    with (
        tempfile.TemporaryDirectory() as runs,
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client, flush_interval=3600, sample_interval=3600),
    ):
        recorders = {e.role: e for e in running() if e.role in ("scheduler", "worker")}
        client.gather(client.map(abs, range(100), pure=False))
        for engine in recorders.values():
            engine.flush()
        for _ in range(tasks // TASKS_PER_FLUSH):
            client.gather(client.map(abs, range(TASKS_PER_FLUSH), pure=False))
            for role, engine in recorders.items():
                for source in engine.sources:
                    time_source(source.rows, engine, found[role], tasks)
                    time_source(source.slow_rows, engine, found[role], tasks)
    return found


def time_source(source: Callable, engine: object, costs: dict[str, float], tasks: int) -> None:
    """Request all batches of a source; time their collection and their encoding."""
    while True:
        before = time.thread_time_ns()
        batches = [batch for batch in source() if batch.n]
        collected = (time.thread_time_ns() - before) / 1e3 / tasks
        if not batches:
            return
        name = " + ".join(dict.fromkeys(batch.table for batch in batches))
        costs[f"{name}: rows collected"] += collected
        for batch in batches:
            encode = min(cpu(lambda b=batch: engine._encoder.frame([b])) for _ in range(3))  # noqa: SLF001
            costs[f"{batch.table}: encoded, compressed"] += encode * 1e6 / tasks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=5000)
    options = parser.parse_args()
    parts = kernel()
    print("| in the worker's thread, around each task | µs |\n|---|---|")
    print(f"| the wrapper and its samples | {around():.1f} |")
    for name, cost in parts.items():
        print(f"| {name} | {cost:.1f} |")
    for role, costs in sources(options.tasks).items():
        print(f"\n| recorder's thread of the {role}, for each task | µs |\n|---|---|")
        for name, cost in sorted(costs.items(), key=lambda item: -item[1]):
            print(f"| {name} | {cost:.2f} |")
        print(f"| together | {sum(costs.values()):.2f} |")


if __name__ == "__main__":
    main()
