"""An array in chunks of a few KiB; and a client that is busy on its own between two results."""

import time

import common
import dask.array as da
from dask.distributed import Client, LocalCluster


def main():
    options = common.options()
    chunk = 500 if options.mended else 25
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.array")
        start = common.now()
        x = da.ones((1000, 1000), chunks=(chunk, chunk))
        assert (x + x.T).sum().compute() == 2_000_000
        if not options.mended_also:
            time.sleep(1.0)  # the client plots the first result, before it submits the second
        y = da.ones((1000, 1000), chunks=(500, 500))
        assert y.max().compute() == 1
        seconds = common.now() - start
    common.report("tiny-tasks", seconds, also=["late-client"])


if __name__ == "__main__":
    main()
