"""A cache in the blocks' function that grows until both workers are paused.

The script empties it every 2.5 s, as its author knows no better. Mended: blocks are not cached.
The second sickness: the thresholds are read from a file in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster, get_worker, wait

RECORDS = 1_250_000


def make_window(number):
    """Return the window of a block: 96 MiB, needed for this block alone."""
    return np.full(96 << 17, 1.0 / (1 + number))


def filtered(block, threshold, *, cached, block_info=None):
    """Return the sum of a filtered block above a threshold."""
    number = block_info[0]["chunk-location"][0]
    weights = make_window(number)
    if cached:
        worker = get_worker()
        worker.windows = [*getattr(worker, "windows", ()), weights]
    crunch(190)
    return np.atleast_1d((block * weights[: len(block)]).sum() > threshold)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="645 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "thresholds.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.array")
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        threshold = client.submit(read_records, str(path), size).result()
        signal = da.ones((24 << 17,), chunks=(1 << 17,))
        kept = signal.map_blocks(
            filtered, threshold, cached=not flags.mended, dtype=bool, chunks=(1,)
        ).persist()
        while True:
            try:
                wait(kept, timeout=2.5)
            except TimeoutError:
                client.run(forget_windows)
            else:
                break
        client.run(forget_windows)
        int(kept.sum().compute())
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "unmanaged-memory", seconds, also=also)


def forget_windows(dask_worker):
    """Empty the worker's cache."""
    dask_worker.windows = []


if __name__ == "__main__":
    main()
