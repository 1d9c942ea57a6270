"""Results that are written in short records, each of which waits until it is on the disk.

Mended: a file is synchronised once, when it is complete.
"""

import os
import tempfile

import dask
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

PARTS = 16
RECORDS = 2_000


@delayed
def simulate(part, folder, *, each):
    """Write a part's records and return their number."""
    crunch(200)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_DSYNC if each else 0)
    file = os.open(f"{folder}/{part}.txt", flags)
    for record in range(RECORDS):
        os.write(file, b"%63d\n" % record)
    os.fsync(file)
    os.close(file)
    return RECORDS


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        parts = [simulate(part, folder, each=not flags.mended) for part in range(PARTS)]
        sum(dask.compute(*parts))
        seconds = now() - start
    report(None if flags.mended else "slow-storage", seconds)


if __name__ == "__main__":
    main()
