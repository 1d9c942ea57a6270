"""A table of 400 MB that the script scatters anew for each step, to both workers.

Mended: it is scattered once.
"""

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

STEPS = 6


def score(table, part):
    """Return a part's score."""
    return crunch(120) + float(table[part])


def main():
    flags = options()
    table = np.full(50_000_000, 1.5)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="6 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        kept = client.scatter(table, broadcast=True) if flags.mended else None
        for step in range(STEPS):
            sent = kept or client.scatter(table + step, broadcast=True)
            client.gather([client.submit(score, sent, part, pure=False) for part in range(4)])
            del sent
        seconds = now() - start
    report(None if flags.mended else "large-scatter", seconds)


if __name__ == "__main__":
    main()
