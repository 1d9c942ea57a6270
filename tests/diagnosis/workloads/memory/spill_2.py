"""Tables of Python strings that are all held until the end, and spilled meanwhile.

Pickling strings makes each spill slow. Mended: the task that makes a table returns the one column
that is needed later. The second sickness: the labels are read from a file in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

TABLES = 20
ROWS = 500_000
RECORDS = 1_250_000


def make_table(number, labels):
    """Return a table with a column of strings."""
    generator = np.random.default_rng(number + labels % 2)
    names = np.char.add("customer-", generator.integers(0, 10**9, ROWS).astype("U9"))
    return pd.DataFrame(
        {"name": pd.Series(names.tolist(), dtype=object), "amount": generator.random(ROWS)}
    )


def make_amounts(number, labels):
    """Return the column that is needed of a table."""
    return make_table(number, labels)[["amount"]]


def highest(table):
    """Return the largest amount."""
    return float(table["amount"].max())


def count_above(table, threshold):
    """Return the number of rows with at least this amount."""
    return int((table["amount"] >= threshold).sum())


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="400 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "labels.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "pandas")
        start = now()
        labels = client.submit(read_records, str(path), 1 << 20 if flags.mended_also else 16)
        make = make_amounts if flags.mended else make_table
        tables = client.map(make, range(TABLES), labels=labels)
        threshold = min(client.gather(client.map(highest, tables)))
        client.gather(client.map(count_above, tables, threshold=threshold))
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "spill", seconds, also=also)


if __name__ == "__main__":
    main()
