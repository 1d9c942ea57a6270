"""Two tasks that wait for a remote service, on four workers; and the client is slow in between."""

import time

import common
from dask.distributed import Client, LocalCluster

PAGES = 24


def download(pages):
    for _ in pages:
        time.sleep(0.4)
    return len(pages)


def main():
    options = common.options()
    batch = 2 if options.mended else 12
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        batches = [list(range(i, i + batch)) for i in range(0, PAGES, batch)]
        counts = client.gather(client.map(download, batches))
        if not options.mended_also:
            time.sleep(0.8)  # the client prepares the second step, while nothing is submitted
        client.submit(sum, counts).result()
        seconds = common.now() - start
    common.report("too-few-tasks", seconds, also=["late-client"])


if __name__ == "__main__":
    main()
