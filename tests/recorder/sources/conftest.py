"""Clusters that the tests of executions share, one per file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

from tests.recorder.sources.measured_tasks import nothing


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of one worker process with one thread."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.submit(nothing).result()
        yield made


@pytest.fixture(scope="module")
def two_threads() -> Iterator[Client]:
    """A client of one worker process with two threads."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0")
    with cluster, Client(cluster) as made:
        made.submit(nothing).result()
        yield made
