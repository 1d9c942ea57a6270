"""The client reads each configuration itself before it submits the task; and a short chain."""

import time

import common
from dask.distributed import Client, LocalCluster

RUNS = 16


def read_configuration(i):
    time.sleep(0.3)
    return {"seed": i}


def simulate(configuration):
    common.work(150)
    return configuration["seed"]


def read_and_simulate(i):
    return simulate(read_configuration(i))


def refine(value):
    common.work(180)
    return value


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            futures = client.map(read_and_simulate, range(RUNS))
        else:
            futures = []
            for i in range(RUNS):
                configuration = read_configuration(i)
                futures.append(client.submit(simulate, configuration))
        values = client.gather(futures)
        if options.mended_also:
            client.gather(client.map(refine, range(8)))
        else:
            value = values[0]
            for _ in range(8):
                value = client.submit(refine, value, pure=False)
            value.result()
        seconds = common.now() - start
    common.report("late-client", seconds, also=["serial-chain"])


if __name__ == "__main__":
    main()
