"""A task that needs more memory than its worker may have, so that the nanny kills the worker.

As it leaves its index on disk, the second try needs little. Mended: the index is built in pieces.
The second sickness: the spectra are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import numpy as np
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster, wait

RECORDS = 1_250_000
SPECTRA = 22


def calibrate(number, settings):
    """Return a calibrated spectrum."""
    crunch(220)
    return np.full(100_000, float(number + settings))


def build_index(path, *, whole):
    """Build the index of all spectra unless it is on disk; return its length."""
    index = Path(path)
    if whole and not index.exists():
        index.write_bytes(b"index")
        everything = []
        while len(everything) < 30:  # 64 MiB each
            everything.append(np.full(64 << 17, 1.0))
            crunch(5)
    crunch(100)
    return len(path)


def total(spectra, length):
    """Return the sum of all spectra."""
    return sum(float(spectrum.sum()) for spectrum in spectra) + length


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="700 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "settings.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client)
        start = now()
        settings = client.submit(read_records, str(path), 1 << 20 if flags.mended_also else 16)
        spectra = client.map(calibrate, range(SPECTRA), settings=settings)
        wait(spectra)
        length = client.submit(build_index, f"{folder}/index", whole=not flags.mended)
        client.submit(total, spectra, length).result()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "killed-worker", seconds, also=also)


if __name__ == "__main__":
    main()
