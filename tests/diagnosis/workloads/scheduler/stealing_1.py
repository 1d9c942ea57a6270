"""Short tasks whose models are on one worker; a second worker joins, and steals them.

Dask takes a model for a few bytes, because it does not know its class. To move it takes longer than
the task. Mended: without work stealing.
"""

import dask
from common import crunch, now, options, ready, report
from dask.distributed import Client, LocalCluster, wait

MODELS = 24
ROUNDS = 6


class Model:
    """A table of words."""

    def __init__(self, number):
        self.words = {f"word-{number}-{i}": i for i in range(500_000)}


def load(number):
    """Return a model."""
    return Model(number)


def look_up(model, number):
    """Return a value of a model."""
    crunch(20)
    return len(model.words) + number


def main():
    flags = options()
    dask.config.set({"distributed.scheduler.work-stealing": not flags.mended})
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="12 GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        models = client.map(load, range(MODELS))
        wait(models)
        cluster.scale(2)
        client.wait_for_workers(2)
        ready(client)
        start = now()
        looked_up = [
            client.submit(look_up, model, number) for number in range(ROUNDS) for model in models
        ]
        client.gather(looked_up)
        seconds = now() - start
    report(None if flags.mended else "stealing", seconds)


if __name__ == "__main__":
    main()
