"""Tasks that keep a large array in a global list, until the nanny restarts their worker.

Mended: the function does not keep what it no longer needs.
"""

import sys

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster, as_completed

KEPT = []
SAMPLES = 8


def analyse(sample, *, keep):
    """Return a number for a sample, of which 200 MiB are kept for no reason."""
    values = np.full(200 << 17, float(sample))
    if keep:
        sys.modules.setdefault("samples_kept", KEPT).append(values)
    crunch(600)
    return float(values[-1])


def main():
    flags = options()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="675 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        total = 0.0
        futures = client.map(analyse, range(SAMPLES), keep=not flags.mended)
        done = as_completed(futures, with_results=True)
        del futures
        for _, value in done:
            total += value
        seconds = now() - start
    report(None if flags.mended else "unmanaged-memory", seconds)


if __name__ == "__main__":
    main()
