"""A scheduler plugin writes each finished task to a slow place, and blocks the event loop."""

import time

import common
from dask.distributed import Client, LocalCluster, SchedulerPlugin


class Audit(SchedulerPlugin):
    """Keep an account of the finished tasks."""

    name = "audit"

    def __init__(self, pause):
        self.pause = pause
        self.finished = []

    def transition(self, key, start, finish, *args, **kwargs):
        if start == "processing" and finish == "memory":
            self.finished.append(key)
            if self.pause:
                time.sleep(self.pause)


def convert(i):
    common.work(20)
    return i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        client.register_plugin(Audit(0 if options.mended else 0.03))
        start = common.now()
        client.gather(client.map(convert, range(150)))
        seconds = common.now() - start
    common.report("blocked-loop", seconds)


if __name__ == "__main__":
    main()
