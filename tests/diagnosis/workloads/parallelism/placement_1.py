"""Blocks that are all on the first worker, as the second one joined later; their tasks wait there.

Mended: both workers are there before the blocks are loaded.
"""

import dask
import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster, wait

BLOCKS = 30


def load(number):
    """Return a block of 40 MB."""
    return np.full(5_000_000, float(number))


def measure(block, number):
    """Return a value of a block."""
    crunch(150)
    return float(block[number])


def main():
    flags = options()
    dask.config.set({"distributed.scheduler.work-stealing": False})
    with (
        LocalCluster(
            n_workers=2 if flags.mended else 1,
            threads_per_worker=1,
            memory_limit="6 GiB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        blocks = client.map(load, range(BLOCKS))
        wait(blocks)
        cluster.scale(2)
        client.wait_for_workers(2)
        ready(client)
        start = now()
        client.gather(client.map(measure, blocks, range(BLOCKS)))
        seconds = now() - start
    report(None if flags.mended else "placement", seconds)


if __name__ == "__main__":
    main()
