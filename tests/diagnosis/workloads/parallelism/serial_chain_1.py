"""Parts are combined one after another, where a tree would combine them side by side."""

import common
import dask
from dask.distributed import Client, LocalCluster

PARTS = 24


@dask.delayed
def load(i):
    return [i]


@dask.delayed
def combine(a, b):
    common.work(220)
    return a + b


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        parts = [load(i) for i in range(PARTS)]
        if options.mended:
            while len(parts) > 1:
                pairs = [combine(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
                parts = pairs + (parts[-1:] if len(parts) % 2 else [])
            total = parts[0]
        else:
            total = parts[0]
            for part in parts[1:]:
                total = combine(total, part)
        assert len(total.compute()) == PARTS
        seconds = common.now() - start
    common.report("serial-chain", seconds)


if __name__ == "__main__":
    main()
