"""All tasks are restricted to one of the two workers."""

import common
from dask.distributed import Client, LocalCluster


def render(frame):
    common.work(450)
    return frame


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
        workers = addresses if options.mended else addresses[:1]
        start = common.now()
        client.gather(client.map(render, range(12), workers=workers))
        seconds = common.now() - start
    common.report("restrictions", seconds)


if __name__ == "__main__":
    main()
