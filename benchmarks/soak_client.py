"""The client of a soak test: batches of work up to a number of tasks, and samples of all processes.

Runs in its own process, independent of the recording. Prints one JSON object per line: finished
tasks, seconds, and memory, descriptors and threads of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from operator import add
from pathlib import Path

import psutil

#: Trivial tasks of a batch; its other tasks make transfers, an error and a retry.
MAPPED = 4_900
#: Pairs of values that are added up; the values of a pair are on two workers.
PAIRS = 98
#: Batches between two samples.
EVERY = 2


class ExpectedError(RuntimeError):
    """Raised by one task of each batch."""


def fail(number: int) -> None:
    raise ExpectedError(number)


def once(path: str) -> int:
    """Fail at the first attempt only."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        Path(path).unlink()
        return 1
    raise ExpectedError(path)


def batch(client, workers: list[str], number: int, size: int, folder: str) -> int:
    """Run a batch with `size` trivial tasks and some others; return its number of tasks."""
    mapped = client.map(lambda x: x + 1, range(size), pure=False)
    left = client.map(bytes, [1000] * (PAIRS // 2), pure=False, workers=workers[:1])
    right = client.map(bytes, [1000] * (PAIRS // 2), pure=False, workers=workers[1:2])
    sums = client.map(add, left, right, pure=False)
    failing = client.submit(fail, number, pure=False)
    retried = client.submit(once, f"{folder}/{number}", pure=False, retries=1)
    if len(client.gather(mapped)) != size or {len(s) for s in client.gather(sums)} != {2000}:
        raise RuntimeError("results are wrong")
    if not isinstance(failing.exception(), ExpectedError) or retried.result() != 1:
        raise RuntimeError("an expected error is missing")
    return len(mapped) + len(left) + len(right) + len(sums) + 2


def sample(processes: dict[str, list[int]]) -> dict[str, list[dict[str, int]]]:
    """Return memory, descriptors and threads of each process, by role."""
    return {
        role: [
            {
                "rss": process.memory_info().rss,
                "fds": process.num_fds(),
                "threads": process.num_threads(),
            }
            for process in map(psutil.Process, pids)
        ]
        for role, pids in processes.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheduler")
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.0, help="least duration")
    parser.add_argument("--mapped", type=int, default=MAPPED, help="trivial tasks per batch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nannies", type=int, nargs="*", default=[])
    options = parser.parse_args()

    from distributed import Client

    with Client(options.scheduler) as client:
        client.wait_for_workers(options.workers, timeout=120)
        workers = sorted(client.nthreads())
        processes = {
            "scheduler": [client.run_on_scheduler(os.getpid)],
            "worker": [client.run(os.getpid)[w] for w in workers],
            "nanny": options.nannies,
            "client": [os.getpid()],
        }
        done, number, start = 0, 0, time.monotonic()
        while done < options.tasks or time.monotonic() - start < options.seconds:
            done += batch(client, workers, number, options.mapped, str(Path.cwd()))
            number += 1
            if number % EVERY == 0 or done >= options.tasks:
                seconds = time.monotonic() - start
                line = {"tasks": done, "seconds": seconds, "processes": sample(processes)}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
