"""A whole array of 800 MB is brought to the client, which only wants its mean."""

import common
import dask.array as da
from dask.distributed import Client, LocalCluster


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.array")
        start = common.now()
        x = da.random.default_rng(1).random((100, 1_000_000), chunks=(10, 1_000_000))
        mean = x.mean().compute() if options.mended else x.compute().mean()
        assert 0.49 < mean < 0.51
        seconds = common.now() - start
    common.report("large-results", seconds)


if __name__ == "__main__":
    main()
