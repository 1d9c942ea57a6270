"""A shuffle of a table of 100 MB, peer to peer, between two steps of computation."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

PARTITIONS = 24
ROWS = 180_000


def make_partition(number):
    """Return a partition of the table: 4 MB."""
    crunch(190)
    generator = np.random.default_rng(number)
    return pd.DataFrame(
        {
            "key": generator.integers(0, 5_000, ROWS),
            "x": generator.normal(size=ROWS),
            "y": generator.normal(size=ROWS),
        }
    )


def fit(table):
    """Return the means of the keys of a partition, which has all rows of each."""
    crunch(190)
    return table.groupby("key")[["x", "y"]].mean()


def main():
    options()
    dask.config.set({"dataframe.shuffle.method": "p2p"})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "pandas", "dask.dataframe", "pyarrow", "distributed.shuffle._shuffle")
        first = make_partition(0)
        table = dd.from_map(make_partition, range(PARTITIONS), meta=first.iloc[:0])
        with get_task_stream(client) as stream:
            start = now()
            means = table.shuffle("key").map_partitions(fit, meta=fit(first).iloc[:0])
            means.sum().compute()
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
