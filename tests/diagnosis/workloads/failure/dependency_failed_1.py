"""Many tasks that never ran, as all depend on a table that could not be read.

The script catches the exception of each, and ends as if nothing had happened. Mended: the table is
there.
"""

import tempfile
from pathlib import Path

from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster, wait
from truth import facts_of, report_facts

SITES = 40


def measure(site):
    """Return a site's measurement."""
    crunch(220)
    return float(site)


def read_table(path, first):
    """Return the table of all sites; it needs the first measurements."""
    return len(Path(path).read_text()) + sum(first)


def calibrate(value, table):
    """Return a calibrated measurement."""
    crunch(60)
    return value * table


def main():
    flags = options()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "sites.csv"
        if flags.mended:
            path.write_text("site,gain\n")
        ready(client, "truth")
        start = now()
        values = client.map(measure, range(SITES))
        table = client.submit(read_table, str(path), values[:20])
        results = client.map(calibrate, values, table=table)
        wait(values + results)
        failed = [future for future in results if future.status == "error"]
        seconds = now() - start
        facts = {}
        if failed:
            facts = facts_of(table.exception().with_traceback(table.traceback()), __file__)
            facts |= {"failed": 1, "never_ran": len(failed)}
    report_facts("dependency-failed" if facts else None, seconds, facts)


if __name__ == "__main__":
    main()
