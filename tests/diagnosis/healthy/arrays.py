"""The mean power spectrum of frames, a block for each."""

import dask.array as da
from common import now, options, ready
from dask.distributed import Client, LocalCluster, get_task_stream
from truth import health_of, report_facts

FRAMES = 124


def main():
    options()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        ready(client, "dask.array", "numpy.fft")
        with get_task_stream(client) as stream:
            start = now()
            frames = da.random.default_rng(3).normal(
                size=(FRAMES, 2_048, 1_200), chunks=(1, 2_048, 1_200)
            )
            power = abs(da.fft.fft2(frames, axes=(1, 2))) ** 2
            power.mean(split_every={0: 16, 1: 1, 2: 1}).compute()
            seconds = now() - start
    report_facts(None, seconds, health_of(stream.data, 2, seconds))


if __name__ == "__main__":
    main()
