"""Arrays in blocks of rows of which columns are needed, so that most bytes move between workers.

Mended: the arrays are made in blocks of columns.
"""

import dask
import dask.array as da
import numpy as np
from common import now, options, ready, report
from dask.distributed import Client, LocalCluster

SIDE = 8_192
COLUMNS = (SIDE, 512)
FIELDS = 2


def roughness(columns):
    """Return the largest step between every 16th row in each column."""
    return np.abs(np.diff(columns[::16], axis=0)).max(axis=0)


def main():
    flags = options()
    dask.config.set({"array.rechunk.method": "tasks"})
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        ready(client, "dask.array")
        start = now()
        chunks = COLUMNS if flags.mended else COLUMNS[::-1]
        for number in range(FIELDS):
            field = da.full((SIDE, SIDE), 1.0 + number, chunks=chunks).rechunk(COLUMNS)
            field.map_blocks(roughness, drop_axis=0, dtype=float).max().compute()
        seconds = now() - start
    report(None if flags.mended else "transfers", seconds)


if __name__ == "__main__":
    main()
