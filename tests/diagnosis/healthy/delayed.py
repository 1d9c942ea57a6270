"""Simulated samples, a fit of each, and a tree that merges the fits."""

import numpy as np
from common import crunch, now, options, ready
from dask import delayed
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

SAMPLES = 48


@delayed
def simulate(seed):
    """Return a sample of 4 MB."""
    crunch(60)
    return np.random.default_rng(seed).normal(size=500_000)


@delayed
def fit(sample):
    """Return the mean and the width of a sample."""
    crunch(130)
    return np.array([sample.mean(), sample.std()])


@delayed
def merge(fits):
    """Return the mean of fits."""
    return np.mean(fits, axis=0)


def main():
    options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        with get_task_stream(client) as stream:
            start = now()
            fits = [fit(simulate(seed)) for seed in range(SAMPLES)]
            while len(fits) > 1:
                fits = [merge(fits[first : first + 8]) for first in range(0, len(fits), 8)]
            fits[0].compute()
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
