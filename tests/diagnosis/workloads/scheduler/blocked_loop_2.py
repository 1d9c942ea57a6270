"""Coroutines as tasks sleep without `await`, so that they block the event loop of their worker."""

import asyncio
import time

import common
from dask.distributed import Client, LocalCluster


async def download(page, *, blocking):
    if blocking:
        time.sleep(0.4)  # noqa: ASYNC251  # this is the planted sickness
    else:
        await asyncio.sleep(0.4)
    return page


def parse(page, amount):
    common.work(amount)
    return page


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        pages = client.gather(client.map(download, range(24), blocking=not options.mended))
        # One of the pages is a straggler.
        amounts = [150] * 7 + [150 if options.mended_also else 900]
        client.gather(client.map(parse, pages[:8], amounts))
        seconds = common.now() - start
    common.report("blocked-loop", seconds, also=["straggler"])


if __name__ == "__main__":
    main()
