"""A task that ends its worker at each try, until the scheduler gives it up.

Mended: its function returns instead of leaving the process.
"""

import os

import dask
from common import crunch, now, options, ready
from dask import delayed
from dask.distributed import Client, KilledWorker, LocalCluster
from truth import report_facts

FILES = 20
BAD = 14
ALLOWED = 2


@delayed
def decode(number):
    """Return what a file contains."""
    crunch(200)
    return number


@delayed
def decode_broken(number, *, leave):
    """Return what a broken file contains, or leave as a C library may do."""
    crunch(200)
    if leave:
        os._exit(3)
    return number


@delayed
def merge(parts):
    """Return the sum of all parts."""
    return sum(parts)


def main():
    flags = options()
    dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "truth")
        start = now()
        parts = [decode(number) for number in range(FILES)]
        parts[BAD] = decode_broken(BAD, leave=not flags.mended)
        try:
            merge(parts).compute()
        except KilledWorker as error:
            facts = {
                "type": "KilledWorker",
                "message": str(error),
                "function": "decode_broken",
                "workers_lost": ALLOWED + 1,
                "never_ran": 1,
            }
            report_facts("killed-task", now() - start, facts)
            raise
        report_facts(None, now() - start, {})


if __name__ == "__main__":
    main()
