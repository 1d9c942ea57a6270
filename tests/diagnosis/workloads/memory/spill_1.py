"""A persisted array that is larger than the workers may keep in memory.

Half of its blocks are on disk while each of four counts reads all of them. Mended: a memory limit
that the blocks fit into.
"""

import dask.array as da
from common import now, options, ready, report
from dask.distributed import Client, LocalCluster, wait


def main():
    flags = options()
    limit = "4 GiB" if flags.mended else "500 MiB"
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client, "dask.array")
        start = now()
        noise = da.random.default_rng(7).random((30_000, 4_096), chunks=(512, 4_096)).persist()
        wait(noise)
        for threshold in (0.2, 0.4, 0.6, 0.8):
            (noise > threshold).sum().compute()
        seconds = now() - start
    report(None if flags.mended else "spill", seconds)


if __name__ == "__main__":
    main()
