"""Files on a slow mount: reading each takes 0.5 s in which the task waits.

The mount is a named pipe that a thread of this script feeds slowly. Mended: the files are on a
local disk. The second sickness: a catalogue is read in reads of 16 bytes before.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

FILES = 14
BLOCKS = 8
BLOCK = 1 << 16
RECORDS = 1_250_000


def feed(path):
    """Write the blocks of a named pipe as a slow mount delivers them, once a reader is there."""
    with open(path, "wb", buffering=0) as pipe:  # noqa: PTH123
        for _ in range(BLOCKS):
            time.sleep(0.0625)
            pipe.write(bytes(BLOCK))


def analyse(path, catalogue):
    """Return the number of bytes of a file, after some computation."""
    length = catalogue
    with open(path, "rb", buffering=BLOCK) as file:  # noqa: PTH123
        while block := file.read(BLOCK):
            length += len(block)
    crunch(200)
    return length


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        catalogue = Path(folder) / "catalogue.bin"
        catalogue.write_bytes(bytes(16 * RECORDS))
        paths = [f"{folder}/file-{number}" for number in range(FILES)]
        for path in paths:
            if flags.mended:
                Path(path).write_bytes(bytes(BLOCKS * BLOCK))
            else:
                os.mkfifo(path)
                threading.Thread(target=feed, args=(path,), daemon=True).start()
        ready(client)
        start = now()
        known = client.submit(read_records, str(catalogue), 1 << 20 if flags.mended_also else 16)
        sum(client.gather(client.map(analyse, paths, catalogue=known)))
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "slow-storage", seconds, also=also)


if __name__ == "__main__":
    main()
