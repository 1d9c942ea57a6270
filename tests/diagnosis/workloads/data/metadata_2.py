"""Tasks that each open the thousands of files of a folder to find their own by its header.

Mended: the client lists the folder once and passes the paths. The second sickness: an index is
read in reads of 16 bytes before.
"""

import os
import tempfile
from pathlib import Path

import dask.bag as db
from common import crunch, now, options, read_records, ready, report
from dask.distributed import Client, LocalCluster

FILES = 4_000
PARTITIONS = 20
PASSES = 3
RECORDS = 1_250_000


def newest(folder, kind):
    """Return the newest file of a kind, by the number in its header."""
    found = {}
    for path in Path(folder).iterdir():
        with path.open("rb") as file:
            header = file.read(16).split()
        if int(header[1]) == kind:
            found[path.name] = int(header[0])
    return max(found, key=found.__getitem__)


def process(kinds, folder, known):
    """Return the lengths of the newest files of these kinds."""
    found = [known[kind] if known else newest(folder, kind) for kind in kinds]
    crunch(130)
    return [len((Path(folder) / name).read_bytes()) for name in found]


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as home,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        index = Path(home) / "index.bin"
        index.write_bytes(bytes(16 * RECORDS))
        folder = f"{home}/files"
        os.mkdir(folder)  # noqa: PTH102
        kinds = PARTITIONS * PASSES
        for number in range(FILES):
            Path(f"{folder}/{number}-{number % kinds}").write_bytes(
                b"%d %d state" % (number, number % kinds)
            )
        ready(client, "dask.bag")
        start = now()
        client.submit(read_records, str(index), 1 << 20 if flags.mended_also else 16).result()
        known = None
        if flags.mended:
            names = sorted(os.listdir(folder))  # noqa: PTH208
            known = {int(name.split("-")[1]): name for name in names}
        bag = db.from_sequence(range(kinds), npartitions=PARTITIONS)
        bag.map_partitions(process, folder, known).sum().compute()
        seconds = now() - start
    also = [] if flags.mended_also else ["small-reads"]
    report(None if flags.mended else "metadata", seconds, also=also)


if __name__ == "__main__":
    main()
