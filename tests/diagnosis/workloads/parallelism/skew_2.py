"""A bag of files, one far larger than the others; afterwards a lock serialises the writing."""

import time

import common
import dask.bag as db
from dask.distributed import Client, LocalCluster, Lock


def read(lines):
    return ["a line of text"] * lines


def analyse(lines):
    lines = list(lines)
    common.work(len(lines) * 0.3)
    return [len(lines)]


def write(i, *, locked):
    if not locked:
        time.sleep(0.12)
        return i
    with Lock("results"):
        time.sleep(0.12)
    return i


def main():
    options = common.options()
    sizes = [1800] * 10 if options.mended else [450] * 9 + [18_000 - 9 * 450]
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.bag")
        start = common.now()
        lines = db.from_sequence(sizes, npartitions=len(sizes)).map(read).flatten()
        assert sum(lines.map_partitions(analyse).compute()) == sum(sizes)
        client.gather(client.map(write, range(12), locked=not options.mended_also))
        seconds = common.now() - start
    common.report("skew", seconds, also=["lock"])


if __name__ == "__main__":
    main()
