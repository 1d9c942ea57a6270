"""60,000 records come to the client, which counts them; the last step has one task."""

from collections import Counter

import common
import dask.bag as db
from dask.distributed import Client, LocalCluster


def read(part):
    return [{"id": i, "kind": f"kind {i % 7}", "value": i * 0.5} for i in range(2_000)]


def kinds(records):
    return Counter(record["kind"] for record in records)


def prepare(amount):
    common.work(amount)
    return amount


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.bag")
        start = common.now()
        records = db.from_sequence(range(30), npartitions=30).map(read).flatten()
        if options.mended:
            counts = sum(records.map_partitions(kinds_of).compute(), Counter())
        else:
            counts = kinds(records.compute())
        assert len(counts) == 7
        amounts = [800, 800] if options.mended_also else [1600]
        client.gather(client.map(prepare, amounts, pure=False))
        seconds = common.now() - start
    common.report("large-results", seconds, also=["too-few-tasks"])


def kinds_of(records):
    return [kinds(records)]


if __name__ == "__main__":
    main()
