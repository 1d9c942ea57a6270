"""Thousands of futures, each of which does next to nothing."""

import common
from dask.distributed import Client, LocalCluster

NUMBERS = 4000


def square(x):
    common.burn(0.1)
    return x * x


def square_all(numbers):
    return sum(square(x) for x in numbers)


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        start = common.now()
        if options.mended:
            size = NUMBERS // 8
            batches = [range(i, i + size) for i in range(0, NUMBERS, size)]
            squares = client.map(square_all, batches)
        else:
            squares = client.map(square, range(NUMBERS))
        assert sum(client.gather(squares)) == sum(x * x for x in range(NUMBERS))
        seconds = common.now() - start
    common.report("tiny-tasks", seconds)


if __name__ == "__main__":
    main()
