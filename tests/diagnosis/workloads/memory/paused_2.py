"""A table that is kept with all columns fills one worker, which is paused from then on.

Spilling is switched off, as on clusters without local disks. Mended: the table is loaded with the
column that is needed. The second sickness: the table is read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask
import numpy as np
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster, wait

RECORDS = 1_250_000
PARTS = 30


def load(path, size, columns):
    """Return the table of a file, expanded to 52 MB a column."""
    data = bytearray()
    with open(path, "rb", buffering=0 if size == 16 else -1) as file:  # noqa: PTH123
        while piece := file.read(size):
            data += piece
    return np.resize(np.frombuffer(data), (columns, 6_550_000))


@delayed
def simulate(seed):
    """Return one simulated part."""
    return crunch(140) + seed


def main():
    flags = options()
    dask.config.set(
        {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="700 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "table.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client)
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        table = client.submit(load, str(path), size, 1 if flags.mended else 10)
        wait(table)
        dask.compute([simulate(seed) for seed in range(PARTS)])
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "paused", seconds, also=also)


if __name__ == "__main__":
    main()
