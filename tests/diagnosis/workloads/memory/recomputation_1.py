"""A machine that is taken away with results that only it has, so that they are computed again.

Mended: the worker is retired, which moves its results to the other one first.
"""

import os
import signal

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster, wait

TILES = 26


def render(number):
    """Return a tile of 2 MB."""
    crunch(240)
    return np.full(250_000, float(number))


def brightness(tile):
    """Return the mean of a tile."""
    return float(tile.mean())


def main():
    flags = options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        pids = client.run(os.getpid)
        start = now()
        tiles = client.map(render, range(TILES))
        wait(tiles)
        address = min(pids)
        if flags.mended:
            client.retire_workers([address])
        else:
            os.kill(pids[address], signal.SIGKILL)
        sum(client.gather(client.map(brightness, tiles)))
        seconds = now() - start
    report(None if flags.mended else "recomputation", seconds)


if __name__ == "__main__":
    main()
