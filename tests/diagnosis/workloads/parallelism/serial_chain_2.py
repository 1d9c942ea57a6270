"""Each step loads its own input, but waits for the step before; one task is a straggler, too."""

import time

import common
from dask.distributed import Client, LocalCluster

STEPS = 30


def load(i):
    time.sleep(0.15)
    return i


def add(total, value):
    return total + value


def load_and_add(total, i):
    return add(total, load(i))


def check(i, seconds):
    time.sleep(seconds)
    return i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            total = client.submit(sum, client.map(load, range(STEPS)))
        else:
            total = 0
            for i in range(STEPS):
                total = client.submit(load_and_add, total, i)
        total.result()
        last = 0.15 if options.mended_also else 1.0
        waits = [0.15] * 7 + [last]
        client.gather(client.map(check, range(8), waits))
        seconds = common.now() - start
    common.report("serial-chain", seconds, also=["straggler"])


if __name__ == "__main__":
    main()
