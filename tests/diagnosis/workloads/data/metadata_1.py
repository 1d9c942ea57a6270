"""Thousands of tiny files: each event looks for the file of its channel, and opens it.

Mended: the files' values are read once, into one file that each task loads.
"""

import json
import tempfile
from pathlib import Path

from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

CHANNELS = 3_000
EVENTS = 8_000
PARTS = 14


def calibrate(part, folder, *, table):
    """Return the sum of the gains of a part's events."""
    gains = json.loads((Path(folder) / "all.json").read_text()) if table else None
    total = 0.0
    for event in range(EVENTS):
        channel = (event * 7 + part) % CHANNELS
        if gains is None:
            path = Path(folder) / f"{channel}.json"
            if path.exists() and path.stat().st_size:
                total += json.loads(path.read_text())
        else:
            total += gains[channel]
    crunch(200)
    return total


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        values = [0.5 + channel for channel in range(CHANNELS)]
        for channel, value in enumerate(values):
            (Path(folder) / f"{channel}.json").write_text(json.dumps(value))
        (Path(folder) / "all.json").write_text(json.dumps(values))
        ready(client)
        start = now()
        parts = client.map(calibrate, range(PARTS), folder=folder, table=flags.mended)
        sum(client.gather(parts))
        seconds = now() - start
    report(None if flags.mended else "metadata", seconds)


if __name__ == "__main__":
    main()
