"""A driver's call waits for its device and holds the GIL meanwhile, in four threads of a worker."""

import ctypes

import common
import dask
from dask.distributed import Client, LocalCluster


@dask.delayed
def acquire(shot):
    # PyDLL calls C functions without releasing the GIL.
    ctypes.PyDLL(None).usleep(250_000)
    return shot


def main():
    options = common.options()
    processes, threads = (4, 1) if options.mended else (1, 4)
    with (
        LocalCluster(
            n_workers=processes, threads_per_worker=threads, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        dask.compute(*[acquire(shot) for shot in range(20)])
        seconds = common.now() - start
    common.report("gil", seconds)


if __name__ == "__main__":
    main()
