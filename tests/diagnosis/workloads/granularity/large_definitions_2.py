"""Each delayed call gets the same array of 90 MB as an argument; then the client submits late."""

import time

import common
import dask
import numpy as np
from dask.distributed import Client, LocalCluster


@dask.delayed
def correct(i, calibration):
    common.work(100)
    return float(calibration[i])


@dask.delayed
def combine(values):
    return sum(values)


def main():
    options = common.options()
    calibration = np.arange(90_000_000 // 8, dtype=float)
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            calibration = client.persist(dask.delayed(calibration))
        futures = [client.compute(correct(i, calibration)) for i in range(24)]
        values = client.gather(futures)
        if not options.mended_also:
            time.sleep(0.8)  # the client looks at the values, before it submits the last step
        combine(list(values)).compute()
        seconds = common.now() - start
    common.report("large-definitions", seconds, also=["late-client"])


if __name__ == "__main__":
    main()
