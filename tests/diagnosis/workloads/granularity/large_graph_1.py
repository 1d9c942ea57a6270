"""A loop over terms makes hundreds of layers of a graph that comes to a handful of tasks."""

import common
import dask.array as da
from dask.distributed import Client, LocalCluster

TERMS = 620


def series(x):
    total = x
    for i in range(TERMS):
        total = total + x / (i + 1)
    return total


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.array")
        start = common.now()
        x = da.ones(40_000, chunks=10_000)
        total = x.map_blocks(series) if options.mended else series(x)
        total.mean().compute()
        seconds = common.now() - start
    common.report("large-graph", seconds)


if __name__ == "__main__":
    main()
