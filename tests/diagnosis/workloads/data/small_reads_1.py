"""Detector records that are read one by one from unbuffered files.

Mended: each file is read in blocks of 1 MiB.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

FILES = 12
RECORDS = 900_000
RECORD = 16


def write_file(path):
    """Write a file of records."""
    np.arange(RECORDS * RECORD // 8, dtype="f8").tofile(path)


def read_file(path, size):
    """Return the sum of the energies of a file."""
    data = bytearray()
    file = os.open(path, os.O_RDONLY)
    while record := os.read(file, size):
        data += record
    os.close(file)
    crunch(150)
    return float(np.frombuffer(data)[::2].sum())


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        paths = [str(Path(folder) / f"run-{number}.bin") for number in range(FILES)]
        for path in paths:
            write_file(path)
        ready(client)
        start = now()
        size = 1 << 20 if flags.mended else RECORD
        sum(client.gather(client.map(read_file, paths, size=size)))
        seconds = now() - start
    report(None if flags.mended else "small-reads", seconds)


if __name__ == "__main__":
    main()
