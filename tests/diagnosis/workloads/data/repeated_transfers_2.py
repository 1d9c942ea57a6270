"""Weights that each step computes anew on one worker, and that all others fetch.

Mended: the script persists them, so that they move once. The second sickness: the samples are read
in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask
import numpy as np
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

STEPS = 8
RECORDS = 1_250_000


def make_weights(scale):
    """Return weights of 192 MB."""
    return np.full(24_000_000, scale)


def score(part, weights, step):
    """Return the score of a part of the samples."""
    return crunch(60) + step + float(weights[part])


def main():
    flags = options()
    # It would drop the copies every two seconds, also of the weights that the script keeps.
    dask.config.set({"distributed.scheduler.active-memory-manager.start": False})
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=4, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "samples.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        count = client.submit(read_records, str(path), size).result()
        weights = dask.delayed(make_weights, pure=True)(1.5)
        if flags.mended:
            weights = weights.persist()
        for step in range(STEPS):
            scores = []
            for part, worker in enumerate(workers):
                with dask.annotate(workers=[worker]):
                    scores.append(dask.delayed(score)(part % count, weights, step))
            dask.compute(*scores, optimize_graph=False)
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "repeated-transfers", seconds, also=also)


if __name__ == "__main__":
    main()
