"""Tracks that are written one by one to unbuffered files.

Mended: each file is written at once.
"""

import os
import tempfile
from pathlib import Path

from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

FILES = 12
TRACKS = 400_000
TRACK = 24


def write_file(path, size):
    """Write the tracks of a file in pieces of a size, and return their number of bytes."""
    crunch(150)
    data = memoryview(bytes(TRACKS * TRACK))
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for start in range(0, len(data), size):
        os.write(file, data[start : start + size])
    os.close(file)
    return len(data)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        paths = [str(Path(folder) / f"tracks-{number}.bin") for number in range(FILES)]
        ready(client)
        start = now()
        size = TRACKS * TRACK if flags.mended else TRACK
        sum(client.gather(client.map(write_file, paths, size=size)))
        seconds = now() - start
    report(None if flags.mended else "small-writes", seconds)


if __name__ == "__main__":
    main()
