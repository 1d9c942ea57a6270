"""A table gets its columns one by one, and its graph is slow to optimise; then a straggler."""

import common
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

COLUMNS = 95


def add_columns(table):
    for i in range(COLUMNS):
        table = table.assign(**{f"c{i}": table["value"] + i})
    return table


def export(i, amount):
    common.work(amount)
    return i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.dataframe")
        start = common.now()
        table = dd.from_pandas(pd.DataFrame({"value": np.arange(8000)}), npartitions=4)
        if options.mended:
            meta = add_columns(pd.DataFrame({"value": np.arange(0)}))
            table = table.map_partitions(add_columns, meta=meta)
        else:
            table = add_columns(table)
        table.sum().compute()
        last = 100 if options.mended_also else 1000
        client.gather(client.map(export, range(8), [100] * 7 + [last]))
        seconds = common.now() - start
    common.report("large-graph", seconds, also=["straggler"])


if __name__ == "__main__":
    main()
