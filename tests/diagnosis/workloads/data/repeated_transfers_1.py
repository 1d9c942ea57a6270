"""A table that one worker holds, and that the other one fetches again in each round.

Between the rounds, the active memory manager drops the second worker's copy, because no task needs
it at this moment. Mended: it is switched off, so that the copy stays.
"""

import dask
import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

ROUNDS = 14


def load_table():
    """Return a table of 400 MB."""
    return np.full(50_000_000, 1.5)


def fit(part, table, parameter):
    """Return the result of a part's fit."""
    return crunch(90) * parameter + float(table[part])


def combine(results):
    """Return the parameter of the next round."""
    crunch(150)
    return 1 / (1 + sum(results))


def main():
    flags = options()
    manager = "distributed.scheduler.active-memory-manager"
    dask.config.set({f"{manager}.start": not flags.mended, f"{manager}.interval": "50ms"})
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        start = now()
        table = client.submit(load_table, workers=[workers[0]])
        parameter = 1.0
        for _ in range(ROUNDS):
            fits = [
                client.submit(fit, part, table, parameter, workers=[worker])
                for part, worker in enumerate(workers)
            ]
            parameter = client.submit(combine, fits, workers=[workers[1]]).result()
        seconds = now() - start
    report(None if flags.mended else "repeated-transfers", seconds)


if __name__ == "__main__":
    main()
