"""A semaphore of one lease for a database that could serve four."""

import time

import common
import dask.bag as db
from dask.distributed import Client, LocalCluster, Semaphore


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.bag")
        start = common.now()
        connections = Semaphore(max_leases=4 if options.mended else 1, name="database")

        def query(ids):
            with connections:
                time.sleep(0.3)
            return [len(list(ids))]

        bag = db.from_sequence(range(1600), npartitions=16)
        assert sum(bag.map_partitions(query).compute()) == 1600
        seconds = common.now() - start
    common.report("lock", seconds)


if __name__ == "__main__":
    main()
