"""Fits that take most of the worker's memory while they run, so that it is paused.

The worker's second thread does not start any of the short tasks meanwhile. Mended: a memory limit
above the need of a fit.
"""

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

FITS = 2
PARTS = 34


def fit(seed):
    """Return a fit's result: it needs a workspace of 480 MB for two seconds."""
    workspace = np.ones(60_000_000)
    crunch(2_000)
    return int(workspace[int(seed)])


def count(seed):
    """Return a short computation's result."""
    return crunch(140) + seed


def main():
    flags = options()
    limit = "4 GiB" if flags.mended else "640 MiB"
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, memory_limit=limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        counts = client.map(count, range(PARTS))
        fits = []
        for seed in range(FITS):  # each needs the one before it
            fits.append(client.submit(fit, fits[-1] if fits else seed, priority=1))
        client.gather(fits + counts)
        seconds = now() - start
    report(None if flags.mended else "paused", seconds)


if __name__ == "__main__":
    main()
