"""A simulation whose parts exchange whole grids with their neighbours at each step.

Mended: they exchange the edges alone. The second sickness: the initial state is read from a file
in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import numpy as np
from common import now, options, read_records, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

PARTS = 16
AXES = (1, 2, 4, 8)  # two parts along each of four axes, so that each has four neighbours
STEPS = 10
RECORDS = 1_250_000
SHAPE = (1_000, 2_000)


@delayed
def initial(part, state):
    """Return the first grid of a part: 16 MB."""
    return np.full(SHAPE, float(part + state))


@delayed
def edges(grid):
    """Return the first and the last row of a grid."""
    return grid[[0, -1]]


@delayed
def advance(grid, *neighbours):
    """Return a grid after a step, which the last rows of its neighbours act upon."""
    grid = grid * 0.98
    for neighbour in neighbours:
        grid[0] += 0.01 * neighbour[-1]
    return grid


@delayed
def total(grids):
    """Return the sum of the first rows of all grids."""
    return sum(float(grid[0].sum()) for grid in grids)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=4, threads_per_worker=1, memory_limit="4 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "state.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client)
        start = now()
        state = delayed(read_records)(str(path), 1 << 20 if flags.mended_also else 16)
        grids = [initial(part, state) for part in range(PARTS)]
        for _ in range(STEPS):
            sides = [edges(grid) for grid in grids] if flags.mended else grids
            grids = [
                advance(grids[part], *(sides[part ^ axis] for axis in AXES))
                for part in range(PARTS)
            ]
        total([edges(grid) for grid in grids]).compute()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "transfers", seconds, also=also)


if __name__ == "__main__":
    main()
