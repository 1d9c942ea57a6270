"""One worker is throttled to a third of its time; and the last step has too few tasks."""

import os
import signal
import threading
import time

import common
import dask.bag as db
from dask.distributed import Client, LocalCluster


def encode(numbers):
    common.crunch(250)
    return [len(list(numbers))]


def publish(amount):
    common.work(amount)
    return amount


def throttle(pid, stop):
    """Let the process run for 30 of every 90 ms, as a container with a low limit of CPU does."""
    while not stop.is_set():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.06)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.03)


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client, "dask.bag")
        slow, fast = sorted(client.scheduler_info(n_workers=-1)["workers"])
        pid = client.run(os.getpid, workers=[slow])[slow]
        stop = threading.Event()
        thread = threading.Thread(target=throttle, args=(pid, stop))
        if not options.mended:
            thread.start()
        try:
            start = common.now()
            bag = db.from_sequence(range(2800), npartitions=28)
            assert sum(bag.map_partitions(encode).compute()) == 2800
            amounts = [500, 500] if options.mended_also else [1000]
            restricted = {} if options.mended_also else {"workers": [fast]}
            client.gather(client.map(publish, amounts, pure=False, **restricted))
            seconds = common.now() - start
        finally:
            stop.set()
            if thread.is_alive():
                thread.join()
    common.report("slow-worker", seconds, also=["too-few-tasks"])


if __name__ == "__main__":
    main()
