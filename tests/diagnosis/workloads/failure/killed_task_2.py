"""A task that needs more memory than any worker has: the nanny kills worker after worker.

Mended: the task works in pieces. The second sickness: the settings are read in reads of 16 bytes.
"""

import tempfile
from pathlib import Path

import dask
import numpy as np
from common import crunch, now, options, read_records, ready
from dask.distributed import Client, KilledWorker, LocalCluster
from truth import report_facts

ALLOWED = 1
SHARDS = 16
RECORDS = 1_250_000


def prepare(shard, settings):
    """Return the length of a shard."""
    crunch(180)
    return shard + settings


def join(lengths, *, pieces):
    """Return the sum of a table of all shards, in so many pieces."""
    kept = []
    for _ in range(40):
        kept.append(np.full(32 << 17, 1.0))  # 32 MiB
        if len(kept) > 40 // pieces:
            kept.clear()
        crunch(20)
    return sum(lengths)


def main():
    flags = options()
    also = [] if flags.mended_also else ["small-reads"]
    dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED})
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="600 MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        settings = Path(folder) / "settings.bin"
        settings.write_bytes(bytes(16 * RECORDS))
        ready(client, "truth")
        start = now()
        known = client.submit(read_records, str(settings), 1 << 20 if flags.mended_also else 16)
        shards = client.map(prepare, range(SHARDS), settings=known)
        lengths = client.gather(shards)
        joined = client.submit(join, lengths, pieces=10 if flags.mended else 1)
        doubled = client.submit(lambda value: 2 * value, joined)
        try:
            doubled.result()
        except KilledWorker as error:
            facts = {
                "type": "KilledWorker",
                "message": str(error),
                "function": "join",
                "workers_lost": ALLOWED + 1,
                "never_ran": 1,
            }
            report_facts("killed-task", now() - start, facts, also=also)
            raise
        report_facts(None, now() - start, {}, also=also)


if __name__ == "__main__":
    main()
