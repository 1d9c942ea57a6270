"""A file of JSON lines that each task reads as a whole for its few lines.

Mended: each task reads its own share of the lines.
"""

import json
import tempfile
from pathlib import Path

import dask
from common import crunch, now, options, ready, report
from dask import delayed
from dask.distributed import Client, LocalCluster

DAYS = 16
EVENTS = 10_000


def write_events(path):
    """Write the events of all days, and return where the lines of each day start and end."""
    ends = []
    with path.open("wb") as file:
        for day in range(DAYS):
            for number in range(EVENTS):
                event = {"day": day, "number": number, "text": "x" * 900}
                file.write(json.dumps(event).encode() + b"\n")
            ends.append(file.tell())
    return list(zip([0, *ends], ends, strict=False))


@delayed
def summarise(path, day, span):
    """Return a day's sum, of the lines between two places of the file, or of all lines."""
    with path.open("rb") as file:
        if span:
            file.seek(span[0])
            lines = file.read(span[1] - span[0]).splitlines()
        else:
            lines = file.readlines()
    crunch(140)
    own = b'"day": %d,' % day
    return sum(json.loads(line)["number"] for line in lines if own in line)


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "events.jsonl"
        spans = write_events(path)
        ready(client)
        start = now()
        days = [summarise(path, day, spans[day] if flags.mended else None) for day in range(DAYS)]
        sum(dask.compute(*days))
        seconds = now() - start
    report(None if flags.mended else "re-reads", seconds)


if __name__ == "__main__":
    main()
