"""A task holds the GIL of the worker whose data the tasks of the other worker wait for."""

import common
import numpy as np
from dask.distributed import Client, LocalCluster


def make_table(n):
    return np.arange(n)


def count(rounds, size):
    total = 0
    for _ in range(rounds):
        # One call in C, that holds the GIL until it has gone through the whole range.
        total += sum(range(size))
    return total


def look_up(i, table):
    common.work(250)
    return int(table[i])


def main():
    options = common.options()
    rounds, size = (16_000, 15_000) if options.mended else (1, 240_000_000)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        first, second = sorted(client.scheduler_info(n_workers=-1)["workers"])
        start = common.now()
        table = client.submit(make_table, 1_000_000, workers=[first])
        table.exception()  # waits, without the data
        counted = client.submit(count, rounds, size, workers=[first])
        futures = client.map(look_up, range(10), table=table, workers=[second])
        client.gather([counted, *futures])
        seconds = common.now() - start
    common.report("blocked-loop", seconds)


if __name__ == "__main__":
    main()
