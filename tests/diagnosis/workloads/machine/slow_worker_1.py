"""A setting in the environment of one worker makes each of its tasks do four times the work."""

import os

import common
from dask.distributed import Client, LocalCluster


def transform(i):
    for _ in range(int(os.environ.get("PASSES", "1"))):
        common.work(250)
    return i


def set_passes(passes):
    os.environ["PASSES"] = passes


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        slow, *_ = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if not options.mended:
            client.run(set_passes, "4", workers=[slow])
        start = common.now()
        client.gather(client.map(transform, range(28)))
        seconds = common.now() - start
    common.report("slow-worker", seconds)


if __name__ == "__main__":
    main()
