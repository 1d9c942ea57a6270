"""Each result is computed in a loop, one after another, instead of all at once."""

import common
import dask
from dask.distributed import Client, LocalCluster


@dask.delayed
def analyse(day):
    common.work(350)
    return day


def main():
    options = common.options()
    days = [analyse(day) for day in range(16)]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            dask.compute(*days)
        else:
            for day in days:
                day.compute()
        seconds = common.now() - start
    common.report("late-client", seconds)


if __name__ == "__main__":
    main()
