"""An asynchronous client that gathers the parts of three computations."""

import asyncio

import numpy as np
from common import crunch, import_all, now, options
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

PARTS = 20


def simulate(seed, scale):
    """Return a simulated part of 1.6 MB."""
    crunch(80)
    return np.random.default_rng(seed).normal(scale=scale, size=200_000)


def spread(part):
    """Return the standard deviation of a part."""
    crunch(80)
    return float(part.std())


async def compute(client, scale):
    """Return the mean spread of all parts of a scale."""
    parts = client.map(simulate, range(PARTS), scale=scale)
    return np.mean(await client.gather(client.map(spread, parts)))


async def main():
    options()
    async with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        await client.wait_for_workers(2)
        await client.run(import_all, ["numpy", "common"])
        async with get_task_stream(client) as stream:
            start = now()
            await asyncio.gather(*(compute(client, scale) for scale in (1.0, 2.0, 3.0)))
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    asyncio.run(main())
