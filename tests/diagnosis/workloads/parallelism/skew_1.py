"""A shuffle by a key that nearly all rows share: one partition gets nearly all the work."""

import common
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

ROWS = 200_000


def score(part):
    common.work(len(part) * 0.032)
    return pd.DataFrame({"rows": [len(part)]})


def main():
    options = common.options()
    keys = np.arange(ROWS) % 64
    if not options.mended:
        keys[: ROWS * 9 // 10] = 7
    table = pd.DataFrame({"customer": keys, "value": np.arange(ROWS)})
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.dataframe", "distributed.shuffle", "pyarrow")
        start = common.now()
        frame = dd.from_pandas(table, npartitions=8)
        shuffled = frame.shuffle("customer", npartitions=8)
        meta = pd.DataFrame({"rows": [0]})
        assert shuffled.map_partitions(score, meta=meta)["rows"].sum().compute() == ROWS
        seconds = common.now() - start
    common.report("skew", seconds)


if __name__ == "__main__":
    main()
