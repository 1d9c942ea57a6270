"""An adaptive cluster removes its workers in each pause, and starts new ones for each phase."""

import time

import common
from dask.distributed import Client, LocalCluster


def simulate(phase, i):
    common.work(150)
    return phase + i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        cluster.adapt(minimum=2 if options.mended else 0, maximum=2, interval="100ms", wait_count=1)
        start = common.now()
        for phase in range(4):
            client.gather(client.map(simulate, [phase] * 6, range(6)))
            time.sleep(0.4)
        seconds = common.now() - start
    common.report("adaptive", seconds)


if __name__ == "__main__":
    main()
