"""NumPy starts eight threads of its own for each thread of Dask; then the client submits late."""

import time

import common
import dask
import numpy as np
from dask.distributed import Client, LocalCluster


def invert(seed):
    matrix = np.random.default_rng(seed).random((400, 400))
    for _ in range(6):
        matrix = np.linalg.inv(matrix)
    return float(matrix[0, 0])


def main():
    options = common.options()
    threads = "1" if options.mended else "8"
    dask.config.set(
        {
            "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": threads,
            "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": threads,
        }
    )
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "numpy.linalg")
        start = common.now()
        values = client.gather(client.map(invert, range(60)))
        if not options.mended_also:
            time.sleep(0.8)  # the client looks at the values, before it submits the last step
        client.submit(sum, values).result()
        seconds = common.now() - start
    common.report("cpu-starvation", seconds, also=["late-client"])


if __name__ == "__main__":
    main()
