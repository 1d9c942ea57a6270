"""A value in one part that its function does not accept: the exception ends the run.

Mended: the part has no such value.
"""

import dask
from common import crunch, now, options, ready
from dask import delayed
from dask.distributed import Client, LocalCluster
from truth import facts_of, report_facts

PARTS = 50
BAD = 31


@delayed
def load(part, *, bad):
    """Return a part's lowest value."""
    crunch(150)
    return -4.0 if bad else float(part)


@delayed
def norm(values):
    """Return the highest value."""
    return max(values)


@delayed
def root(value, highest, part):
    """Return the square root of a value, as a share of the highest."""
    if value < 0:
        raise ValueError(f"negative sqrt in part {part}")
    crunch(60)
    return (value / highest) ** 0.5


@delayed
def merge(roots):
    """Return the sum of the roots."""
    return sum(roots)


def main():
    flags = options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "truth")
        start = now()
        parts = [load(part, bad=part == BAD and not flags.mended) for part in range(PARTS)]
        highest = norm(parts)
        roots = [root(value, highest, part) for part, value in enumerate(parts)]
        try:
            dask.compute(merge(roots[:25]), merge(roots[25:]), merge(roots))
        except ValueError as error:
            facts = facts_of(error, __file__) | {"failed": 1, "never_ran": 2}
            report_facts("exception", now() - start, facts)
            raise
        report_facts(None, now() - start, {})


if __name__ == "__main__":
    main()
