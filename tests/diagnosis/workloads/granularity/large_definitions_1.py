"""The function of each task holds a table of 120 MB in its closure."""

import common
import numpy as np
from dask.distributed import Client, LocalCluster

TABLE = 120_000_000 // 8


def main():
    options = common.options()
    table = np.arange(TABLE, dtype=float)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            shared = client.scatter(table, broadcast=True)
            futures = client.map(look_up, range(16), table=shared)
        else:

            def look_up_here(i):
                return look_up(i, table)

            futures = [client.submit(look_up_here, i) for i in range(16)]
        assert len(client.gather(futures)) == 16
        seconds = common.now() - start
    common.report("large-definitions", seconds)


def look_up(i, table):
    common.work(100)
    return float(table[i])


if __name__ == "__main__":
    main()
