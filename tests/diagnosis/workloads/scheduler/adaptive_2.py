"""Single tasks between wide phases make an adaptive cluster shrink and grow; and a lock."""

import time

import common
from dask.distributed import Client, LocalCluster, Lock


def search(phase, i):
    time.sleep(0.25)
    return phase + i


def choose(values):
    time.sleep(0.4)
    return max(values)


def write(i, *, locked):
    if not locked:
        time.sleep(0.15)
        return i
    with Lock("results"):
        time.sleep(0.15)
    return i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        cluster.adapt(minimum=4 if options.mended else 1, maximum=4, interval="100ms", wait_count=1)
        start = common.now()
        client.gather(client.map(write, range(8), locked=not options.mended_also))
        best = 0
        for _ in range(3):
            values = client.map(search, [best] * 16, range(16))
            best = client.submit(choose, values).result()
        seconds = common.now() - start
    common.report("adaptive", seconds, also=["lock"])


if __name__ == "__main__":
    main()
