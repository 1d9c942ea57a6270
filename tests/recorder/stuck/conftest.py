"""A cluster for the tests of this folder, and checks that are fast enough for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_strata.recorder.stuck import durations, running, source, waiting
from tests.conftest import wait_until

#: Time between two checks in these tests, in seconds.
INTERVAL = 0.5


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    """A client of one cluster for all tests: two worker processes, two threads each."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every half second, with thresholds of a few seconds instead of minutes."""
    monkeypatch.setattr(source, "_INTERVAL_SECONDS", INTERVAL)
    monkeypatch.setattr(source, "_ANSWER_SECONDS", 1.0)
    for module in (durations, running):
        monkeypatch.setattr(module, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(durations, "_FEW_SECONDS", 2.0)
    monkeypatch.setattr(durations, "_NONE_SECONDS", 2.0)
    monkeypatch.setattr(running, "_SILENT_SECONDS", 3.0)
    monkeypatch.setattr(waiting, "_UNRUNNABLE_SECONDS", 1.0)
    monkeypatch.setattr(waiting, "_NO_WORKER_SECONDS", 1.0)
    monkeypatch.setattr(waiting, "_STILL_SECONDS", 2.0)


def source_of(client: Client) -> source.StuckSource:
    """Return the source of the one recording of a client's cluster in this process."""
    scheduler = client.cluster.scheduler
    plugins = (p for name, p in scheduler.plugins.items() if name.startswith("dask-strata"))
    return next(plugins)._sources._stuck


def found(client: Client, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until a check has found a row, and return it."""
    checks = source_of(client)
    return wait_until(
        lambda: next((row for row in checks.present if matches(row)), None), what="a finding"
    )
