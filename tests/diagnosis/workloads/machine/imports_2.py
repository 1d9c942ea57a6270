"""Functions of libraries that workers import when they unpack the first task.

Mended: the workers import them before. The second sickness: reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import numpy as np
from common import now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

SAMPLES = 8
RECORDS = 1_000_000


def main():
    import awkward  # workers import the modules of the script's top before any task
    from scipy.stats import spearmanr

    flags = options()
    sample = np.random.default_rng(3).random((400, 2))
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "events.bin"
        path.write_bytes(bytes(16 * RECORDS))
        modules = ["scipy.stats", "awkward"]
        ready(client, *(modules if flags.mended else []))
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        client.submit(read_records, str(path), size).result()
        arrays = client.map(awkward.from_numpy, [sample + n for n in range(SAMPLES)])
        client.gather(client.map(awkward.mean, arrays))
        client.gather(client.map(spearmanr, [sample + n for n in range(SAMPLES)]))
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "imports", seconds, also=also)


if __name__ == "__main__":
    main()
