"""Pure Python in two threads of one process: the threads share one GIL."""

import common
from dask.distributed import Client, LocalCluster


def parse(document):
    common.burn(400)
    return document


def main():
    options = common.options()
    processes, threads = (2, 1) if options.mended else (1, 2)
    with (
        LocalCluster(
            n_workers=processes, threads_per_worker=threads, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        client.gather(client.map(parse, range(14)))
        seconds = common.now() - start
    common.report("gil", seconds)


if __name__ == "__main__":
    main()
