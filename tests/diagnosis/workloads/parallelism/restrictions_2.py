"""Each task takes the one licence of its worker, so that half of the threads cannot work."""

import time

import common
import dask
from dask.distributed import Client, LocalCluster

CASES = 24


@dask.delayed
def solve(case):
    time.sleep(0.4)
    return case


def collect(cases, seconds):
    time.sleep(seconds)
    return cases


def main():
    options = common.options()
    licence = 0.5 if options.mended else 1
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            dashboard_address=":0",
            resources={"licence": 1},
        ) as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        with dask.annotate(resources={"licence": licence}):
            solved = dask.compute(*[solve(case) for case in range(CASES)], optimize_graph=False)
        # One of the four tasks that collect is a straggler.
        waits = [0.2, 0.2, 0.2, 0.2 if options.mended_also else 1.1]
        client.gather(client.map(collect, [solved[i::4] for i in range(4)], waits))
        seconds = common.now() - start
    common.report("restrictions", seconds, also=["straggler"])


if __name__ == "__main__":
    main()
