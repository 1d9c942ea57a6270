"""Regular expressions hold the GIL in C, in two threads of one worker; and one slow last task."""

import re

import common
import dask.bag as db
from dask.distributed import Client, LocalCluster

PATTERN = re.compile(r"(\w+)@(\w+)\.(com|org|net)")
TEXT = "write to somebody at example or nobody at example in the morning " * 400


def count(page):
    return page, sum(len(PATTERN.findall(TEXT)) for _ in range(10))


def export(amount):
    common.crunch(amount)
    return amount


def main():
    options = common.options()
    processes, threads = (2, 1) if options.mended else (1, 2)
    with (
        LocalCluster(
            n_workers=processes, threads_per_worker=threads, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.bag")
        start = common.now()
        pages = db.from_sequence(range(360), npartitions=16)
        assert len(pages.map(count).compute()) == 360
        # The last task that exports takes far longer than the others.
        amounts = [100] * 7 + [100 if options.mended_also else 950]
        client.gather(client.map(export, amounts, pure=False))
        seconds = common.now() - start
    common.report("gil", seconds, also=["straggler"])


if __name__ == "__main__":
    main()
