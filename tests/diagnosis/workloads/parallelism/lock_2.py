"""An array is read with `lock=True`: the threads of the worker read one after another."""

import time

import common
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster


class Store:
    """A file format whose reads take long, and need no CPU."""

    shape = (24, 1000)
    dtype = np.dtype(float)
    ndim = 2

    def __getitem__(self, index):
        time.sleep(0.2)
        rows, columns = (len(range(*s.indices(n))) for s, n in zip(index, self.shape, strict=True))
        return np.ones((rows, columns))


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.array")
        start = common.now()
        data = da.from_array(Store(), chunks=(1, 1000), lock=not options.mended)
        assert data.sum().compute() == 24_000
        if not options.mended_also:
            time.sleep(0.7)  # the client is busy on its own, and only then submits the second step
        assert data[:4].max().compute() == 1
        seconds = common.now() - start
    common.report("lock", seconds, also=["late-client"])


if __name__ == "__main__":
    main()
