"""An array of one chunk: one thread computes while the other is idle."""

import common
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster


def simulate(block):
    common.work(6 * block.shape[0])
    return block * 2


def main():
    options = common.options()
    chunks = 100 if options.mended else 1000
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.array")
        start = common.now()
        grid = da.from_array(np.ones((1000, 50)), chunks=(chunks, 50))
        grid.map_blocks(simulate, dtype=float).sum().compute()
        seconds = common.now() - start
    common.report("too-few-tasks", seconds)


if __name__ == "__main__":
    main()
