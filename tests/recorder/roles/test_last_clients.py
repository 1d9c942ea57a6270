"""Clients that send their rows to a scheduler: its end waits for the last of them."""

from __future__ import annotations

from pathlib import Path

import dask
from distributed import Client, LocalCluster

from dask_strata import open_run, record
from dask_strata.recorder.roles.client import ClientRecorder
from dask_strata.recorder.session import announced
from tests.conftest import assert_whole, rows


async def join_from_afar(client: Client) -> None:
    """Record a client as if it did not see the run's folder."""
    [spec] = (await announced(client)).values()
    ClientRecorder(client, spec | {"folder": "/no such folder"})


def test_a_shutdown_by_another_client_loses_no_row(runs: Path) -> None:
    """The other client's last submission and its end are on record."""
    with (
        # The other client tries to reconnect for this long.
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster.scheduler_address) as mine,
        Client(cluster.scheduler_address, set_as_default=False) as other,
    ):
        with record(runs, client=mine, clients="all") as run:
            other.sync(join_from_afar, other)
            assert other.submit(abs, -5).result() == 5
            mine.shutdown()
        ended = open_run(run.path)
        [process] = rows(
            ended, f"select transport, exit_reason from processes where address = '{other.id}'"
        )
        assert process == {"transport": "comm", "exit_reason": "detached"}
        sent = f"select count(*) as n from client_submissions where client = '{other.id}'"
        assert rows(ended, sent) == [{"n": 1}]
        assert_whole(ended)
