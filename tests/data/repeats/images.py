"""Blocks of noise that are smoothed, reduced and combined, on two workers."""

import numpy as np
from dask.distributed import Client, LocalCluster

BLOCKS = 40


def load(seed):
    """Return a block of 2 MB."""
    return np.random.default_rng(seed).random((500, 500))


def smooth(block):
    """Return the block, averaged over neighbours."""
    for _ in range(20):
        block = (block + np.roll(block, 1, 0) + np.roll(block, 1, 1)) / 3
    return block


def reduce(block):
    """Return the largest singular value."""
    return float(np.linalg.norm(block[:250, :250], 2))


def combine(values):
    """Return the sum of values."""
    return sum(values)


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        blocks = client.map(load, range(BLOCKS))
        smoothed = client.map(smooth, blocks)
        print(client.submit(combine, client.map(reduce, smoothed)).result())
