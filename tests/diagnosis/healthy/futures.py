"""A search that submits the next trial as soon as one is complete."""

import numpy as np
from common import crunch, now, options, ready
from dask.distributed import Client, LocalCluster, as_completed, get_task_stream
from truth import health_of, report_facts

TRIALS = 60
AHEAD = 8


def trial(number, width):
    """Return a trial's width and score."""
    crunch(150)
    points = np.random.default_rng(number).normal(scale=width, size=200_000)
    return width, float(np.abs(points.std() - 2.5))


def main():
    options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client)
        with get_task_stream(client) as stream:
            start = now()
            best = (1.0, 10.0)
            running = as_completed(
                [client.submit(trial, number, 1.0 + number / 8) for number in range(AHEAD)],
                with_results=True,
            )
            submitted = AHEAD
            for _, result in running:
                best = min(best, result, key=lambda pair: pair[1])
                if submitted < TRIALS:
                    running.add(client.submit(trial, submitted, best[0] + 0.1 / (1 + submitted)))
                    submitted += 1
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
