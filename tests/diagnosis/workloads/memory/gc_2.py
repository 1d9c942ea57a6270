"""Tasks that make a large tree of Python objects, in two threads of a worker.

Each allocation may begin a collection, which visits the tree of both. Mended: the collector is
disabled, as these trees have no cycles.
"""

import gc

from common import now, options, ready, report
from dask.distributed import Client, LocalCluster


def parse(document):
    """Return the number of nodes of a document."""
    tree = [{"node": i, "children": [[i], [i]]} for i in range(250_000 + document)]
    return len(tree)


def main():
    flags = options()
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        if flags.mended:
            client.run(gc.disable)
        start = now()
        client.gather(client.map(parse, range(10)))
        seconds = now() - start
    report("gc", seconds)


if __name__ == "__main__":
    main()
