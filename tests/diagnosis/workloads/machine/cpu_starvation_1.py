"""Other processes of the same host take most of the CPU while the workers compute."""

import subprocess
import sys

import common
from dask.distributed import Client, LocalCluster

OTHERS = 2
# The loop ends with the process that started it.
LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def compress(i):
    common.crunch(250)
    return i


def main():
    options = common.options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        common.ready(client)
        others = [
            subprocess.Popen([sys.executable, "-c", LOOP])
            for _ in range(0 if options.mended else OTHERS)
        ]
        try:
            start = common.now()
            client.gather(client.map(compress, range(20)))
            seconds = common.now() - start
        finally:
            for other in others:
                other.kill()
                other.wait()
    common.report("cpu-starvation", seconds)


if __name__ == "__main__":
    main()
