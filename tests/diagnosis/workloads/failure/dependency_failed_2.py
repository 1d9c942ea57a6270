"""Three layers of tasks that never ran, as one block of many is broken.

The script catches the exception and ends without results. Mended: the block is not broken. The
second sickness: the settings are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask
from common import crunch, now, options, read_records, ready
from dask import delayed
from dask.distributed import Client, LocalCluster
from truth import facts_of, report_facts

BLOCKS = 40
LAYERS = 3
BAD = 23
RECORDS = 1_250_000


@delayed
def read(block, settings):
    """Return a block's bytes."""
    crunch(200)
    return block + settings


@delayed
def unpack(blocks, block, *, broken):
    """Return a block's content, with the dictionary of all blocks."""
    crunch(20)
    if broken:
        raise EOFError(f"block {block} ends after 512 of 4096 bytes")
    return [len(blocks)] * 10


@delayed
def refine(parts, layer):
    """Return the refined content, which needs all blocks."""
    crunch(10)
    return [value + layer for value in parts[0]]


def main():
    flags = options()
    also = [] if flags.mended_also else ["small-reads"]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "settings.bin"
        path.write_bytes(bytes(16 * RECORDS))
        ready(client, "truth")
        start = now()
        settings = delayed(read_records)(str(path), 1 << 20 if flags.mended_also else 16)
        blocks = [read(block, settings) for block in range(BLOCKS)]
        parts = [
            unpack(blocks, block, broken=block == BAD and not flags.mended)
            for block in range(BLOCKS)
        ]
        layer = parts
        for number in range(LAYERS):
            layer = [refine(layer, number + place) for place in range(BLOCKS)]
        facts = {}
        try:
            dask.compute(*layer)
        except EOFError as error:
            facts = facts_of(error, __file__) | {"failed": 1, "never_ran": LAYERS * BLOCKS}
        seconds = now() - start
    report_facts("dependency-failed" if facts else None, seconds, facts, also=also)


if __name__ == "__main__":
    main()
