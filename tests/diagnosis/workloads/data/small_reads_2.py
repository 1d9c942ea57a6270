"""Events that are picked from a large file in any order: a seek and a short read for each.

Mended: each task reads its part of the file at once and picks from it. The second sickness: the
tasks wait for a summary that is written with a sync after each line.
"""

import os
import tempfile
from pathlib import Path

import dask
import numpy as np
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

PARTS = 10
EVENTS = 600_000
SIZE = 40
LINES = 2_500


@delayed
def write_summary(path, lines, *, sync):
    """Write a summary and return its length."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for line in range(lines):
        os.write(file, b"%7d\n" % line)
        if sync:
            os.fsync(file)
    os.close(file)
    return 8 * lines


@delayed
def pick(path, part, summary, *, whole):
    """Return the sum of the first bytes of a part's events, in the order of their times."""
    order = np.random.default_rng(part).permutation(EVENTS)
    start = part * EVENTS * SIZE
    total = summary
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        if whole:
            file.seek(start)
            events = np.frombuffer(file.read(EVENTS * SIZE), "u1").reshape(EVENTS, SIZE)
            total += int(events[order, 0].sum())
        else:
            for event in order.tolist():
                file.seek(start + event * SIZE)
                total += file.read(SIZE)[0]
    crunch(150)
    return total


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "events.bin"
        np.full(PARTS * EVENTS * SIZE, 3, "u1").tofile(path)
        ready(client)
        start = now()
        summary = write_summary(f"{folder}/summary", LINES, sync=not flags.mended_also)
        parts = [pick(str(path), part, summary, whole=flags.mended) for part in range(PARTS)]
        sum(dask.compute(*parts))
        seconds = now() - start
    also = [] if flags.mended_also else ["slow-storage"]
    report(None if flags.mended else "small-reads", seconds, also=also)


if __name__ == "__main__":
    main()
