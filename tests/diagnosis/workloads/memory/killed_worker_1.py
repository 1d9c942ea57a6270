"""A native library that kills its worker at one input, after most of the work.

The worker starts again and its results are computed again. Mended: the input is read by the
library's safe path.
"""

import os
import signal
import tempfile
from pathlib import Path

import dask
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

INPUTS = 30
BAD = 26


@delayed
def decode(number):
    """Return what an input contains."""
    return crunch(220) + number


@delayed
def decode_natively(number, index, marker, *, safe):
    """Return what an input contains; the first try ends as a segmentation fault does."""
    if not safe and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return crunch(220) + number + index


@delayed
def merge(parts):
    """Return the sum of all inputs."""
    return sum(parts)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        parts = [decode(number) for number in range(INPUTS)]
        index = merge(parts[:BAD])
        parts[BAD] = decode_natively(BAD, index, f"{folder}/tried", safe=flags.mended)
        dask.compute(merge(parts))
        seconds = now() - start
    report(None if flags.mended else "killed-worker", seconds)


if __name__ == "__main__":
    main()
