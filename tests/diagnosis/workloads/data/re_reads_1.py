"""A CSV file that each task reads as a whole for its few rows.

Mended: each task reads its own share of the lines.
"""

import io
import tempfile
from pathlib import Path

import dask
import numpy as np
import pandas as pd
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

DAYS = 16
ROWS = 60_000


def write_table(path):
    """Write a table of all days, and return where the lines of each day start and end."""
    generator = np.random.default_rng(5)
    ends = []
    with path.open("wb") as file:
        for day in range(DAYS):
            rows = generator.random((ROWS, 3))
            table = pd.DataFrame(rows, columns=["x", "y", "z"]).assign(day=day)
            file.write(table.to_csv(index=False, header=False, float_format="%.9f").encode())
            ends.append(file.tell())
    return list(zip([0, *ends], ends, strict=False))


@delayed
def summarise(path, day, span):
    """Return a day's sum, of the lines between two places of the file, or of all lines."""
    names = ["x", "y", "z", "day"]
    if span:
        with path.open("rb") as file:
            file.seek(span[0])
            source = io.BytesIO(file.read(span[1] - span[0]))
    else:
        source = path
    table = pd.read_csv(source, names=names)
    crunch(140)
    return float(table.loc[table["day"] == day, "x"].sum())


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "table.csv"
        spans = write_table(path)
        ready(client, "pandas")
        start = now()
        days = [summarise(path, day, spans[day] if flags.mended else None) for day in range(DAYS)]
        sum(dask.compute(*days))
        seconds = now() - start
    report(None if flags.mended else "re-reads", seconds)


if __name__ == "__main__":
    main()
