"""Lines that are split, counted and merged in a tree, on two workers of two threads."""

import random
from collections import Counter

from dask.distributed import Client, LocalCluster

PARTS = 32


def read(seed):
    """Return lines of words."""
    words = random.Random(seed)
    return [" ".join(f"w{words.randint(0, 999)}" for _ in range(12)) for _ in range(3_000)]


def split(lines):
    """Return the words of lines."""
    return [word for line in lines for word in line.split()]


def count(words):
    """Return how often each word occurs."""
    return Counter(words)


def merge(one, other):
    """Return the counts of two parts."""
    return one + other


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        counts = client.map(count, client.map(split, client.map(read, range(PARTS))))
        while len(counts) > 1:
            counts = client.map(merge, counts[::2], counts[1::2])
        print(sum(counts[0].result().values()))
