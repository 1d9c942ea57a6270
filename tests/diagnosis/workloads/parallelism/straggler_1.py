"""The last of many fits does not converge, and runs to its limit of iterations."""

import time

import common
from dask.distributed import Client, LocalCluster

FITS = 21


def fit(i, iterations):
    start = time.perf_counter()
    common.crunch(10 * iterations)
    return i, time.perf_counter() - start


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        last = 25 if options.mended else 350
        iterations = [25] * (FITS - 1) + [last]
        futures = client.map(fit, range(FITS), iterations)
        durations = sorted(seconds for _, seconds in client.gather(futures))
        seconds = common.now() - start
    planted = durations[-1] - durations[FITS // 2]
    common.report("straggler", seconds, planted)


if __name__ == "__main__":
    main()
