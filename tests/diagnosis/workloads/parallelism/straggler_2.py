"""One partition of a table waits for a slow answer; the client submits late, too."""

import time

import common
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

PARTS = 16


def enrich(part):
    first = int(part["id"].iloc[0])
    time.sleep(0.3 + float(part["delay"].iloc[0]))
    return part.assign(first=first)


def main():
    options = common.options()
    table = pd.DataFrame({"id": np.arange(PARTS * 100), "delay": 0.0})
    if not options.mended:
        table.loc[(PARTS - 1) * 100 :, "delay"] = 4.0
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.dataframe")
        start = common.now()
        frame = dd.from_pandas(table, npartitions=PARTS)
        enriched = frame.map_partitions(enrich, meta=enrich_meta(table))
        rows = enriched.compute()
        if not options.mended_also:
            time.sleep(0.8)  # the client looks at the rows, before it submits the second step
        dd.from_pandas(rows, npartitions=4).map_partitions(enrich, meta=rows.head(0)).compute()
        seconds = common.now() - start
    common.report("straggler", seconds, 0.0 if options.mended else 4.0, also=["late-client"])


def enrich_meta(table):
    return table.head(0).assign(first=0)


if __name__ == "__main__":
    main()
