"""The client of one measurement: wait for workers, warm up, measure one workload.

Runs in its own process, on the same machine as the scheduler and the workers that `overhead.py`
started, and prints one JSON object. It is independent of the recording.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import psutil

#: Arguments of each workload, by size.
SIZES = {
    "a": {"full": {"tasks": 20_000}, "short": {"tasks": 2_000}, "quick": {"tasks": 500}},
    "b": {"full": {"tasks": 500, "seconds": 0.02}, "quick": {"tasks": 50, "seconds": 0.02}},
    "c": {"full": {"pieces": 80}, "quick": {"pieces": 16}},
}
TITLES = {
    "a": "trivial tasks, one client.map and one gather",
    "b": "tasks of 20 ms",
    "c": "rechunk by tasks, with transfers",
}
#: Seconds before the measurement, in which recorders write versions and configuration.
SETTLE_SECONDS = 2.0
#: Seconds after the workload, included in the measurement: recorders encode its last rows.
TRAIL_SECONDS = 0.5


def trivial_tasks(client, tasks: int) -> None:
    if len(client.gather(client.map(lambda x: x + 1, range(tasks), pure=False))) != tasks:
        raise RuntimeError("results are missing")


def short_tasks(client, tasks: int, seconds: float) -> None:
    def nap(number: int) -> int:
        time.sleep(seconds)
        return number

    if len(client.gather(client.map(nap, range(tasks), pure=False))) != tasks:
        raise RuntimeError("results are missing")


def rechunk(client, pieces: int) -> None:
    import dask
    import dask.array as da

    size = pieces * 20
    with dask.config.set({"array.rechunk.method": "tasks", "array.rechunk.threshold": 10**6}):
        rows = da.ones((size, size), chunks=(20, size), dtype="float32")
        columns = (rows + 1).rechunk((size, 20))
        # One number per column, so that little is gathered, and no fusion or culling.
        total = client.compute(columns.map_blocks(lambda b: b[:1, :1] * b.sum()).sum()).result()
    if total <= 0:
        raise RuntimeError("the result is wrong")


RUNS = {"a": trivial_tasks, "b": short_tasks, "c": rechunk}


def process_seconds(pid: int) -> float:
    """Return user plus system seconds of one process, with nanosecond precision on Linux."""
    try:
        # The clock id of clock_getcpuclockid(3): psutil has a resolution of 10 ms only.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system


def cpu_seconds(processes: dict[str, list[int]]) -> dict[str, float]:
    """Return CPU seconds by role."""
    return {role: sum(map(process_seconds, pids)) for role, pids in processes.items()}


def peak_bytes(processes: dict[str, list[int]]) -> dict[str, int]:
    """Return the peak resident size of the processes of each role, in bytes."""
    peaks = {}
    for role, pids in processes.items():
        status = [Path(f"/proc/{pid}/status").read_text(encoding="utf-8") for pid in pids]
        peaks[role] = max(int(s.partition("VmHWM:")[2].split()[0]) * 1024 for s in status)
    return peaks


def counters(client) -> dict[str, int]:
    """Return Dask's own counts of transitions and of transfers."""
    workers = client.run(
        lambda dask_worker: (
            dask_worker.state.transition_counter,
            dask_worker.state.transfer_incoming_count_total,
        )
    ).values()
    return {
        "scheduler transitions": client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.transition_counter
        ),
        "worker transitions": sum(w[0] for w in workers),
        "transfers": sum(w[1] for w in workers),
    }


def measure(client, workload: str, size: str, processes: dict[str, list[int]]) -> dict:
    """Run the workload once; return the costs of each process, for start-up and workload."""
    client.gather(client.map(lambda x: -x, range(40), pure=False))
    time.sleep(SETTLE_SECONDS)
    counts = counters(client)
    startup = cpu_seconds(processes)
    began = time.time_ns()
    start = time.perf_counter()
    RUNS[workload](client, **SIZES[workload][size])
    wall = time.perf_counter() - start
    time.sleep(TRAIL_SECONDS)
    cpu = cpu_seconds(processes)
    ended = time.time_ns()
    after = counters(client)
    return {
        "wall": wall,
        "cpu": {role: cpu[role] - startup[role] for role in cpu},
        "startup cpu": startup,
        "peak bytes": peak_bytes(processes),
        "counts": {name: after[name] - counts[name] for name in after},
        "window ns": [began, ended],
        "load": psutil.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler")
    parser.add_argument("--workload", choices=RUNS, required=True)
    parser.add_argument("--size", choices=("full", "short", "quick"), default="full")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--started", type=float, required=True, help="time.time() at the start")
    parser.add_argument("--nannies", type=int, nargs="*", default=[])
    options = parser.parse_args()

    from distributed import Client

    with Client(options.scheduler) as client:
        client.wait_for_workers(options.workers, timeout=60)
        ready = time.time() - options.started
        processes = {
            "scheduler": [client.run_on_scheduler(os.getpid)],
            "worker": list(client.run(os.getpid).values()),
            "nanny": options.nannies,
            "client": [os.getpid()],
        }
        found = measure(client, options.workload, options.size, processes)
        found["startup wall"] = ready
    print(json.dumps(found))


if __name__ == "__main__":
    main()
