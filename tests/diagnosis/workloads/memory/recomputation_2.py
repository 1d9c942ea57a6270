"""An array whose blocks are lost with their worker between two steps.

A worker dies in both; mended, each block has a second copy on another worker. The second
sickness: the offsets are read in reads of 16 bytes.
"""

import os
import signal
import tempfile
from pathlib import Path

import dask.array as da
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster, futures_of, wait

RECORDS = 1_250_000
BLOCKS = 30


def smooth(block, offset):
    """Return a smoothed block."""
    crunch(220)
    return block + offset


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "offsets.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.array")
        pids = client.run(os.getpid)
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        offset = client.submit(read_records, str(path), size).result()
        image = da.ones((BLOCKS * 100, 1_000), chunks=(100, 1_000))
        image = image.map_blocks(smooth, offset, dtype=float).persist()
        wait(image)
        if flags.mended:
            client.replicate(futures_of(image), n=2)
        os.kill(pids[min(pids)], signal.SIGKILL)
        image.mean(axis=1).max().compute()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "recomputation", seconds, also=also)


if __name__ == "__main__":
    main()
