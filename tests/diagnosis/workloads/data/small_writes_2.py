"""Partitions of a bag as lines of a log that is flushed after each line.

Mended: the log is flushed at its end. The second sickness: labels in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask.bag as db
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

PARTITIONS = 10
LINES = 450_000
RECORDS = 700_000


def log(values, folder, *, flush):
    """Write a line for each value and return the number of lines."""
    total = 0
    for value in values:
        with (Path(folder) / f"{value}.log").open("w", buffering=1 if flush else -1) as file:
            for line in range(LINES):
                file.write(f"event {line} of {value}\n")
                total += 1
    crunch(100)
    return [total]


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "labels.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.bag")
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        client.submit(read_records, str(path), size).result()
        values = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS)
        values.map_partitions(log, folder, flush=not flags.mended).sum().compute()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "small-writes", seconds, also=also)


if __name__ == "__main__":
    main()
