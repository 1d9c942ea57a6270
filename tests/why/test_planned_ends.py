"""Ends that Dask or the user asked for are not called unexpected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, wait

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.summary import summarize
from dask_strata.analysis.why import why
from dask_strata.report.why import plain_why
from tests.conftest import wait_until

pytestmark = pytest.mark.long


def n_workers(client: Client) -> int:
    """Return how many workers the scheduler has."""
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers)))


def retire(cluster: LocalCluster, client: Client) -> None:
    """Retire one worker."""
    client.retire_workers(
        [cluster.scheduler.workers[next(iter(cluster.scheduler.workers))].address]
    )
    wait_until(lambda: n_workers(client) == 1, what="one worker")


def adapt(cluster: LocalCluster, client: Client) -> None:
    """Let the cluster shrink, as there is no work."""
    cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=1)
    wait_until(lambda: n_workers(client) == 0, what="no worker")


def scale(cluster: LocalCluster, client: Client) -> None:
    """Scale the cluster down."""
    cluster.scale(1)
    wait_until(lambda: n_workers(client) == 1, what="one worker")


def shut_down(cluster: LocalCluster, client: Client) -> None:
    """End scheduler and workers from the client."""
    del cluster
    client.shutdown()


def close(cluster: LocalCluster, client: Client) -> None:
    """Close the cluster object."""
    del client
    cluster.close()


#: How many workers end before the recording does, and words of the answer.
WAYS = {
    retire: (1, "1 retired (client.retire_workers, or an adaptive cluster)"),
    adapt: (2, "2 retired (client.retire_workers, or an adaptive cluster)"),
    scale: (1, "1 closed by the nanny"),
    shut_down: (2, "2 closed by the nanny"),
    close: (2, "2 closed by the nanny"),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_planned_ends(way: Callable[[LocalCluster, Client], None], runs: Path) -> None:
    """They are summed up in a line, and no insight is about them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        wait(client.map(abs, range(4)))
        way(cluster, client)
    n, words = WAYS[way]
    read = open_run(run.path)
    found = why(read)
    assert [end.ended for end in found.ends] == ["planned"] * n
    assert found.post_mortems == ()
    shown = plain_why(found)
    assert shown == f"no worker ended unexpectedly; {n} as planned: {shown.partition(': ')[2]}"
    assert words in shown
    assert "unexpectedly" not in " ".join(i.text for i in summarize(read).insights)
    pid = found.ends[0].pid
    assert pid is not None
    assert "this end was planned" in " ".join(plain_why(why(read, pid)).split())
