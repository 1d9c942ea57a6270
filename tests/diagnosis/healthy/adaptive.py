"""A cluster that adapts to its work: from one worker to two, once."""

import numpy as np
from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

PARTS = 84


def simulate(seed):
    """Return the mean of a simulated part."""
    crunch(190)
    return float(np.random.default_rng(seed).normal(size=200_000).mean())


def main():
    options()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        cluster.adapt(minimum=1, maximum=2, interval="500ms", wait_count=100)
        with get_task_stream(client) as stream:
            start = now()
            sum(client.gather(client.map(simulate, range(PARTS))))
            seconds = now() - start
        facts = health_of(stream.data, 2, seconds)
        facts["workers"] = len(client.scheduler_info(n_workers=-1)["workers"])
    report_facts(None, seconds, facts)


if __name__ == "__main__":
    main()
