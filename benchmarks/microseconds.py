"""Where each microsecond of recording goes: every part of it measured alone, in CPU time.

A real cluster in this process is recorded while its recorders' threads sleep; then each of
them is asked, on this thread, for what it saw, and the parts of that are timed one by one.
Also timed is what happens around each task in the worker's thread, with what the kernel is
asked for. All of it is the least of several repetitions, so in warm caches: inside of a busy
worker the same costs more. `overhead.py` measures what it comes to in the end.

    python benchmarks/microseconds.py --tasks 5000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5
ROUNDS = 2_000
#: Tasks that are seen in one flush interval.
A_FLUSH = 50


def cpu(action: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread that something takes."""
    before = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - before) / 1e9


def each(action: Callable[[], object]) -> float:
    """Return the least CPU time of one call, in microseconds."""

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
    """Return what the accounting of one thread costs, and each part of it."""
    import resource

    from dask_strata.recorder.pipeline import resource_usage

    fds = [os.open(f"/proc/{f}", os.O_RDONLY) for f in ("thread-self/io", "self/statm")]
    found = {
        "both samples": each(lambda: (resource_usage.begin(), resource_usage.end())),
        "of these, one read of /proc/thread-self/io": each(lambda: os.pread(fds[0], 512, 0)),
        "one read of /proc/self/statm": each(lambda: os.pread(fds[1], 512, 0)),
        "one getrusage": each(lambda: resource.getrusage(resource.RUSAGE_THREAD)),
        "one thread_time_ns and time_ns": each(lambda: (time.thread_time_ns(), time.time_ns())),
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
        """Stands for a worker; the hook only uses its identity."""

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
    """Return by role what each table costs a task: to put together, and to encode."""
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
        for _ in range(tasks // A_FLUSH):
            client.gather(client.map(abs, range(A_FLUSH), pure=False))
            for role, engine in recorders.items():
                for source in engine.sources:
                    ask(source.rows, engine, found[role], tasks)
                    ask(source.slow_rows, engine, found[role], tasks)
    return found


def ask(source: Callable, engine: object, costs: dict[str, float], tasks: int) -> None:
    """Take all that a source has, and time how its batches come and are encoded."""
    while True:
        before = time.thread_time_ns()
        batches = [batch for batch in source() if batch.n]
        made = (time.thread_time_ns() - before) / 1e3 / tasks
        if not batches:
            return
        name = " + ".join(dict.fromkeys(batch.table for batch in batches))
        costs[f"{name}: rows put together"] += made
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
