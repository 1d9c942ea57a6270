"""Short tasks that need large data on one worker are stolen by the other, with the data."""

import common
import dask
import numpy as np
from dask.distributed import Client, LocalCluster


def load(i, megabytes):
    return np.full(megabytes * 131_072, float(i))


def measure(block, i):
    common.work(25)
    return float(block[i])


def main():
    options = common.options()
    dask.config.set({"distributed.scheduler.work-stealing": not options.mended})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        first, *_ = sorted(client.scheduler_info(n_workers=-1)["workers"])
        start = common.now()
        blocks = client.map(load, range(40), megabytes=60, workers=[first])
        client.gather(client.map(measure, blocks, range(40)))
        seconds = common.now() - start
    common.report("stealing", seconds)


if __name__ == "__main__":
    main()
