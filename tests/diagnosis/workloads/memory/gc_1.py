"""Tasks that call gc.collect() in a process with a large lookup table of Python objects.

Mended: the table is frozen after it was loaded, so that collections do not visit it.
"""

import gc
import sys

from common import now, options, ready, report, work
from dask.distributed import Client, LocalCluster


def load(rows, *, freeze):
    """Load the table into a worker."""
    sys.modules["lookup_table"] = [{"id": i, "tags": [i]} for i in range(rows)]
    if freeze:
        gc.collect()
        gc.freeze()


def clean(page):
    """Clean a page, and the memory, to be safe; return the seconds of the latter."""
    work(60)
    start = now()
    gc.collect()
    return now() - start


def main():
    flags = options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        client.run(load, 400_000, freeze=flags.mended)
        start = now()
        collected = client.gather(client.map(clean, range(40)))
        seconds = now() - start
    # Two workers collect at the same time.
    report("gc", seconds, planted=sum(collected) / 2)


if __name__ == "__main__":
    main()
