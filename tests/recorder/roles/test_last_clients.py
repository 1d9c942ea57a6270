"""Clients that send their rows to a scheduler: its end waits for the last of them."""

from __future__ import annotations

import gc
from pathlib import Path

import dask
from distributed import Client, LocalCluster

from dask_strata import open_run, record
from dask_strata.recorder.roles.client import ClientRecorder
from dask_strata.recorder.roles.last_clients import EndNotice, client_topic
from dask_strata.recorder.session import announced
from tests.conftest import assert_whole, rows, wait_until


async def join_from_afar(client: Client) -> None:
    """Record a client as if it did not see the run's folder."""
    [spec] = (await announced(client)).values()
    ClientRecorder(client, spec | {"folder": "/no such folder"})


def test_nothing_is_left_in_a_client_that_stays(runs: Path) -> None:
    """Neither a subscription nor an object of the recording."""
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster.scheduler_address) as mine,
        Client(cluster.scheduler_address, set_as_default=False) as other,
    ):
        before = dict(other._event_handlers)
        with record(runs, client=mine, clients="all") as run:
            other.sync(join_from_afar, other)
            assert other.submit(abs, -5).result() == 5
            assert other._event_handlers.keys() - before.keys()
        wait_until(lambda: other._event_handlers == before, what="the removal of the handler")
        wait_until(lambda: not ours(), what="the end of the recorders")
        topics = cluster.scheduler._broker._topics
        wait_until(
            lambda: client_topic(run.manifest.run_id) not in topics,
            what="the removal of the events",
        )
        assert_whole(run)


def test_a_client_that_does_not_answer_is_a_loss(runs: Path) -> None:
    """The recording ends without it, and the others are whole."""
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster.scheduler_address) as mine,
        Client(cluster.scheduler_address, set_as_default=False) as silent,
    ):
        with record(runs, client=mine, clients="all") as run:
            begun = {"client": silent.id, "records": True}
            silent.log_event(client_topic(run.manifest.run_id), begun)
            assert mine.submit(abs, -5).result() == 5
        lost = rows(run, 'select what, "where" from losses')
        assert lost == [{"what": "client", "where": silent.id}]
        assert rows(run, "select * from log_events where topic like 'dask-strata-%'") == []
        [finding] = run.check().missing
        assert silent.id in finding.text


def ours() -> list[object]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, (ClientRecorder, EndNotice))]


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
