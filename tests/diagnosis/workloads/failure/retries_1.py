"""Requests that fail at the first tries with two types of exception, and are tried again.

Mended: the service answers at once.
"""

import tempfile
from pathlib import Path

from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster
from truth import report_facts

REQUESTS = 24


def tries_of(folder, request):
    """Count and return the tries of a request."""
    path = Path(folder) / str(request)
    with path.open("a") as file:
        file.write(".")
    return path.stat().st_size


def fetch(request, folder, *, flaky):
    """Return the answer to a request."""
    crunch(180)
    tried = tries_of(folder, request)
    if flaky and request % 3 == 0 and tried <= 2:
        raise ConnectionError("the catalogue service closed the connection")
    if flaky and request % 3 == 1 and tried <= 1:
        raise TimeoutError("no answer of the catalogue service in 10 s")
    return request


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        start = now()
        answers = client.map(
            fetch, range(REQUESTS), folder=folder, flaky=not flags.mended, retries=4
        )
        sum(client.gather(answers))
        seconds = now() - start
    thirds = REQUESTS // 3
    facts = {"retries": {"ConnectionError": 2 * thirds, "TimeoutError": thirds}}
    report_facts(None if flags.mended else "retries", seconds, {} if flags.mended else facts)


if __name__ == "__main__":
    main()
