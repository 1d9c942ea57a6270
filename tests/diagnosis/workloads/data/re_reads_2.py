"""A binary file of 256 MiB that each block's function reads as a whole for its rows.

Mended: each function reads its own rows. The second sickness: the gains are read in reads of 16
bytes.
"""

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

BLOCKS = 48
ROWS = 700
COLUMNS = 1_000
RECORDS = 1_250_000


def read_block(path, gain, *, whole, block_info=None):
    """Return the rows of a block."""
    first = block_info[None]["array-location"][0][0]
    if whole:
        rows = np.fromfile(path).reshape(-1, COLUMNS)[first : first + ROWS]
    else:
        count = ROWS * COLUMNS
        rows = np.fromfile(path, count=count, offset=first * COLUMNS * 8).reshape(-1, COLUMNS)
    crunch(70)
    return rows * gain


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "image.bin"
        np.ones(BLOCKS * ROWS * COLUMNS).tofile(path)
        gains = Path(folder) / "gains.bin"
        gains.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.array")
        start = now()
        gain = client.submit(
            read_records, str(gains), 1 << 20 if flags.mended_also else 16
        ).result()
        image = da.map_blocks(
            read_block,
            str(path),
            gain,
            whole=not flags.mended,
            chunks=((ROWS,) * BLOCKS, (COLUMNS,)),
            dtype=float,
            meta=np.empty((0, 0)),
        )
        image.max(axis=1).sum().compute()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "re-reads", seconds, also=also)


if __name__ == "__main__":
    main()
