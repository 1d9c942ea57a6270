"""The workload of `loss.py`: tasks and their client write down themselves what happened, and when.

Each mark is one line, `PID TIME_NS WHAT KEY`, appended to one file by one `write`, so that it
survives any kill and the order of lines is the order of marks, whoever made them:

| what | who | when |
|---|---|---|
| submit, submitted | client | before and after `Client.submit` |
| begin, end | task | first and last thing that it does |
| heard | client | it has been told that the task is done |
| ask, flushed | task or client | before `dask_strata.flush()`, and after it returned True |
| ask-scheduler, scheduler-flushed | client | the same, done in the scheduler's process |
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import deque

#: Tasks that a client has under way.
UNDER_WAY = 6


def mark(path: str, what: str, key: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"{os.getpid()} {time.time_ns()} {what} {key}\n".encode())
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
    """Submit tasks until somebody ends it; so many of them flush, of all."""
    from distributed import Client

    rng, under_way = random.Random(seed), deque()

    def heard(future) -> None:
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
            future.add_done_callback(heard)
            under_way.append(future)
            if rng.random() < often:
                flush_marked(path, key)
            if rng.random() < often:
                mark(path, "ask-scheduler", key)
                if client.run_on_scheduler(flush_in_a_thread):
                    mark(path, "scheduler-flushed", key)
            if len(under_way) >= UNDER_WAY:
                under_way.popleft().result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("marks")
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    parser.add_argument("often", type=float)
    given = parser.parse_args()
    # Functions of `__main__` go by value, and are found again in every worker.
    work(given.address, given.marks, given.name, given.seed, given.often)
