"""Short tasks whose function imports large libraries, on each of four workers anew.

Mended: the workers import them before.
"""

from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster

ITEMS = 24


def measure(number):
    """Return a measure of an event."""
    import coffea.nanoevents
    import scipy.stats

    crunch(20)
    return float(scipy.stats.norm.cdf(number)) + len(coffea.nanoevents.__all__)


def main():
    flags = options()
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        modules = ["scipy.stats", "coffea.nanoevents"]
        ready(client, *(modules if flags.mended else []))
        start = now()
        sum(client.gather(client.map(measure, range(ITEMS))))
        seconds = now() - start
    report(None if flags.mended else "imports", seconds)


if __name__ == "__main__":
    main()
