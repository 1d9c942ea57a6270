"""A table that is released after each round, made again, and moved to the other worker again.

Mended: the script keeps the table, which is copied to both workers once.
"""

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

ROUNDS = 12


def load_table():
    """Return a table of 256 MB."""
    return np.full(32_000_000, 1.5)


def fit(part, table, parameter):
    """Return the result of a part's fit."""
    return crunch(90) * parameter + float(table[part])


def fit_all(client, table, first, second, parameter):
    """Return the sum of the fits of two parts, each with the worker that has its data."""
    fits = [
        client.submit(fit, part, table, parameter, workers=[worker])
        for part, worker in enumerate((first, second))
    ]
    return sum(client.gather(fits))


def main():
    flags = options()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
        start = now()
        kept = client.submit(load_table, workers=[first]) if flags.mended else None
        parameter = 1.0
        for _ in range(ROUNDS):
            table = kept or client.submit(load_table, workers=[first])
            parameter = 1 / (1 + fit_all(client, table, first, second, parameter))
            del table
        seconds = now() - start
    report(None if flags.mended else "repeated-transfers", seconds)


if __name__ == "__main__":
    main()
