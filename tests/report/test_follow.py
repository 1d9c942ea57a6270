"""A run while it is recorded: on a terminal, and in Dask's own dashboard."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client

import dask_strata
from tests.conftest import wait_until

pytestmark = pytest.mark.long

HOSTILE = "<img src=x>"


def page_of(client: Client) -> str:
    """Return the text of the page in Dask's dashboard."""
    url = client.dashboard_link.replace("/status", "/strata")
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        return answer.read().decode()


def test_dasks_dashboard_has_a_page_while_a_run_is_recorded(runs: Path) -> None:
    """The page has the run's folder and commands, and disappears when the recording ends."""
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        with dask_strata.record(runs, client=client, name=HOSTILE) as run:
            client.submit(abs, -1).result()
            page = wait_until(lambda: "write error</dt><dd>none" in (p := page_of(client)) and p)
            assert f"dask-strata show --follow {run.path}" in page
            assert "&lt;img src=x&gt;" in page
            assert HOSTILE not in page
        with pytest.raises(urllib.error.HTTPError) as gone:
            page_of(client)
        assert gone.value.code == 404
        # Dask's own pages are as they were.
        health = client.dashboard_link.replace("/status", "/health")
        with urllib.request.urlopen(health, timeout=60) as answer:
            assert answer.status == 200


def test_a_run_is_followed_to_its_end(runs: Path) -> None:
    """New rows print a line, and the end of the recording prints the first screen."""
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        with dask_strata.record(runs, client=client) as run:
            client.submit(abs, -1).result()
            command = [sys.executable, "-m", "dask_strata", "show", "--follow", str(run.path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            first = process.stdout.readline()
            client.gather(client.map(abs, range(-9, -1)))
        rest = process.communicate(timeout=120)[0]
    assert "worker" in first
    assert process.returncode == 0
    assert "finished" in rest
    assert "9 tasks" in rest
    assert "next       dask-strata" in rest


def test_a_run_that_is_complete_is_shown_at_once(
    runs: Path, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A complete run is shown without waiting; --follow excludes JSON."""
    with (
        Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client,
        dask_strata.record(runs, client=client) as run,
    ):
        client.submit(abs, -1).result()
    plain = strata("show", run.path, check=True).stdout
    assert strata("show", "--follow", run.path, check=True).stdout == plain
    refused = strata("show", "--follow", "--format", "json", run.path)
    assert refused.returncode == 2
