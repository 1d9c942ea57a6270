"""All tasks hold the same lock of Dask for their whole duration."""

from contextlib import nullcontext

import common
from dask.distributed import Client, LocalCluster, Lock


def update(row, *, locked):
    with Lock("table") if locked else nullcontext():
        common.work(300)
    return row


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        client.gather(client.map(update, range(18), locked=not options.mended))
        seconds = common.now() - start
    common.report("lock", seconds)


if __name__ == "__main__":
    main()
