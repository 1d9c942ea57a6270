"""Weights that the script sends to all workers at each step though they have not changed.

Mended: they are sent once. The second sickness: the samples are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask.bag as db
import numpy as np
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

STEPS = 8
RECORDS = 1_250_000


def read_samples(path, size):
    """Return the number of bytes of a file of 16-byte records."""
    total = 0
    with open(path, "rb", buffering=0 if size == 16 else -1) as file:  # noqa: PTH123
        while record := file.read(size):
            total += len(record)
    return total


def score(samples, weights, step):
    """Return the score of a partition of samples."""
    return [crunch(60) + step + len(list(samples)) + float(weights[0])]


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=4, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "samples.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.bag")
        weights = np.linspace(0.0, 1.0, 12_000_000)
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        count = client.submit(read_samples, str(path), size).result()
        samples = db.from_sequence(range(count // RECORDS * 4), npartitions=4)
        sent = client.scatter(weights, broadcast=True) if flags.mended else None
        for step in range(STEPS):
            current = sent or client.scatter(weights, broadcast=True)
            samples.map_partitions(score, current, step).compute()
            del current
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "repeated-transfers", seconds, also=also)


if __name__ == "__main__":
    main()
