"""Sums by group of a table in partitions of a few MB."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
from common import now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

PARTITIONS = 100
ROWS = 1_000_000


def make_partition(number):
    """Return a partition of the table: 24 MB."""
    generator = np.random.default_rng(number)
    return pd.DataFrame(
        {
            "key": generator.integers(0, 200, ROWS),
            "amount": generator.normal(size=ROWS),
            "weight": generator.gamma(2.0, size=ROWS),
        }
    )


def with_product(table):
    """Return the rows with large amounts, with a product."""
    table = table[table["amount"] > -1.0]
    return table.assign(product=np.exp(table["amount"]) * table["weight"])


def main():
    options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "pandas", "dask.dataframe")
        table = dd.from_map(make_partition, range(PARTITIONS), meta=make_partition(0).iloc[:0])
        with get_task_stream(client) as stream:
            start = now()
            groups = table.map_partitions(with_product).groupby("key")
            groups.agg(["sum", "mean", "std"], split_out=1).compute()
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
