"""Indices of documents on one of two workers; the other one, which is idle, steals the queries.

Dask takes an index for a few bytes, because it does not know its class. Mended: without work
stealing. The second sickness: the queries are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster, wait

INDICES = 8
QUERIES = 60
RECORDS = 1_250_000


class Index:
    """The places of words in documents."""

    def __init__(self, number):
        self.places = [(f"word-{number}-{i}", i, i % 7) for i in range(1_000_000)]


def query(index, n_queries, number):
    """Return an answer of an index."""
    crunch(50)
    return index.places[number][1] + n_queries


def main():
    flags = options()
    dask.config.set({"distributed.scheduler.work-stealing": not flags.mended})
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="12 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "queries.bin"
        path.write_bytes(bytes(16 * RECORDS))
        indices = client.map(Index, range(INDICES))
        wait(indices)
        cluster.scale(2)
        client.wait_for_workers(2)
        ready(client)
        start = now()
        size = 1 << 20 if flags.mended_also else 16
        n_queries = client.submit(read_records, str(path), size).result()
        answers = [
            client.submit(query, indices[number % INDICES], n_queries, number)
            for number in range(QUERIES)
        ]
        client.gather(answers)
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "stealing", seconds, also=also)


if __name__ == "__main__":
    main()
