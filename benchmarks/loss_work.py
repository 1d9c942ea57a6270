"""The workload of `loss.py`: tasks and their client mark their own events, with times.

Each mark is one line, `PID TIME_NS EVENT KEY`, appended to one file by one `write`, so that it
survives any kill and the order of lines is the order of marks of all processes:

| event | process | time |
|---|---|---|
| submit, submitted | client | before and after `Client.submit` |
| begin, end | worker | start and end of a task |
| heard | client | the result of the task was reported to it |
| ask, flushed | worker or client | before `dask_strata.flush()`, and after it returned True |
| ask-scheduler, scheduler-flushed | client | the same, for a flush in the scheduler's process |
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import deque

#: Number of unfinished tasks of a client.
PENDING = 6


def mark(path: str, event: str, key: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"{os.getpid()} {time.time_ns()} {event} {key}\n".encode())
    finally:
        os.close(fd)


def flush_marked(path: str, key: str) -> None:
    import dask_strata

    mark(path, "ask", key)
    if dask_strata.flush():
        mark(path, "flushed", key)


def task(path: str, key: str, seconds: float, *, flushes: bool) -> None:
    mark(path, "begin", key)
    time.sleep(seconds)
    if flushes:
        flush_marked(path, key)
    mark(path, "end", key)


async def flush_in_a_thread() -> bool:
    import asyncio

    import dask_strata

    return await asyncio.to_thread(dask_strata.flush)


def work(address: str, path: str, name: str, seed: int, often: float) -> None:
    """Submit tasks until the process is killed; a share of them, `often`, flushes."""
    from distributed import Client

    rng, pending = random.Random(seed), deque()

    def report(future) -> None:
        if future.status == "finished":
            mark(path, "heard", future.key)

    with Client(address, set_as_default=False) as client:
        number = 0
        while True:
            number += 1
            key = f"{name}-{number}"
            mark(path, "submit", key)
            future = client.submit(
                task, path, key, rng.uniform(0.001, 0.01), flushes=rng.random() < often, key=key
            )
            mark(path, "submitted", key)
            future.add_done_callback(report)
            pending.append(future)
            if rng.random() < often:
                flush_marked(path, key)
            if rng.random() < often:
                mark(path, "ask-scheduler", key)
                if client.run_on_scheduler(flush_in_a_thread):
                    mark(path, "scheduler-flushed", key)
            if len(pending) >= PENDING:
                pending.popleft().result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("marks")
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    parser.add_argument("often", type=float)
    given = parser.parse_args()
    # Functions of `__main__` are pickled by value, so that workers can load them.
    work(given.address, given.marks, given.name, given.seed, given.often)
