"""Partitions that are read from a source that fails now and then; `compute` tries them again.

Mended: the source does not fail. The second sickness: the settings are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask.bag as db
from common import crunch, now, options, read_records, ready
from dask.distributed import Client, LocalCluster
from truth import report_facts

PARTITIONS = 18
TRIES = 3
RECORDS = 1_250_000


def read_events(numbers, folder, *, flaky):
    """Return the events of a partition."""
    (number,) = numbers
    marker = Path(folder) / str(number)
    with marker.open("a") as file:
        file.write(".")
    crunch(200)
    if flaky and number % 2 and marker.stat().st_size < TRIES:
        raise OSError(5, "Input/output error", f"/data/events-{number}.root")
    return [number] * 100


def main():
    flags = options()
    also = [] if flags.mended_also else ["small-reads"]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        settings = Path(folder) / "settings.bin"
        settings.write_bytes(bytes(16 * RECORDS))
        ready(client, "dask.bag")
        start = now()
        client.submit(read_records, str(settings), 1 << 20 if flags.mended_also else 16).result()
        bag = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS)
        events = bag.map_partitions(read_events, folder, flaky=not flags.mended)
        events.sum().compute(retries=TRIES, optimize_graph=False)
        seconds = now() - start
    facts = {} if flags.mended else {"retries": {"OSError": PARTITIONS // 2 * (TRIES - 1)}}
    report_facts(None if flags.mended else "retries", seconds, facts, also=also)


if __name__ == "__main__":
    main()
