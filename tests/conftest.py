"""Fixtures and helpers of all tests: real clusters, the real command, no mocks."""

from __future__ import annotations

import linecache
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import dask
import hypothesis
import pytest
from distributed import Client, LocalCluster

from dask_strata import Run, open_run
from dask_strata.analysis.check import WHOLE

if TYPE_CHECKING:
    from tests.support.deployment import Deployment

# A background process may ignore interrupts and pass that on; scripts under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No deadline: on a loaded machine any example may take long.
hypothesis.settings.register_profile("strata", deadline=None)
hypothesis.settings.load_profile("strata")

# Processes with gilknocker's thread may abort while they exit; tests of it switch it on.
GIL_ENABLED = "distributed.admin.system-monitor.gil.enabled"
_GIL_VARIABLE = "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED"
dask.config.set({GIL_ENABLED: False})
os.environ[_GIL_VARIABLE] = "False"  # of the processes that fixtures of a module start, too


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for each test, that of its commands and clusters, too."""
    folder = tmp_path_factory.getbasetemp() / f"cache-{secrets.token_hex(4)}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "dask-strata" / "runs"


def wait_until(
    condition: Callable[[], Any], seconds: float = 60, what: str = "the condition"
) -> Any:
    """Wait until a condition returns a true value, and return that; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s without success for {what}")
        time.sleep(0.05)
    return value


def pytest_collection_finish() -> None:
    """Restore the handler of Ctrl-C, which the import of dask_jobqueue replaces."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _gathers_facts() -> bool:
    return any(
        thread.name.startswith("dask-strata-") and thread.name.endswith("-facts")
        for thread in threading.enumerate()
    )


def _read_sources() -> None:
    for module in list(sys.modules.values()):
        if (file := getattr(module, "__file__", None)) and file.endswith(".py"):
            linecache.getlines(file)


def wait_for_own_reads(client: Any) -> None:
    """Wait until the workers have read the files that the recorders and Dask's profiler read.

    While these are read, the bytes of a task are unknown in the kernel's counts of its process.
    The profiler reads the source file of each function that it sees for the first time.
    """
    client.run(_read_sources)
    wait_until(lambda: not any(client.run(_gathers_facts).values()), what="the workers' facts")


@pytest.fixture(scope="module", autouse=True)
def _own_environment() -> Iterator[None]:
    """Restore the environment after a module: a nanny sets its worker's variables here, too."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Folder for runs."""
    return tmp_path / "runs"


@pytest.fixture
def strata(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the dask-strata command in the test's own folder."""

    def run(
        *arguments: Any, check: bool = False, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]:
        kwargs.setdefault("cwd", tmp_path)
        kwargs.setdefault("timeout", 180)
        done = subprocess.run(
            [sys.executable, "-m", "dask_strata", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            **kwargs,
        )
        if check and done.returncode:
            pytest.fail(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a script and return its path."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of two worker processes with nannies, two threads each."""
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the cluster."""
    with Client(cluster) as made:
        yield made


@pytest.fixture
def deployment(tmp_path: Path, runs: Path) -> Iterator[Deployment]:
    """Start processes as on a cluster; kill them after the test."""
    from tests.support.deployment import Deployment

    made = Deployment(tmp_path, runs)
    yield made
    made.kill()


def runs_in(folder: Path) -> list[Run]:
    """Return the runs in a folder, opened."""
    return [open_run(path.parent) for path in sorted(folder.glob("*/run.json"))]


def rows(run: Run, query: str) -> list[dict[str, Any]]:
    """Return the answer to a query as mappings."""
    return run.sql(query).to_arrow().to_pylist()


@pytest.fixture
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prolong timeouts: on a slow machine the record would contain a worker that hangs."""
    monkeypatch.setattr("dask_strata.recorder.roles.detach._SECONDS", 60)
    monkeypatch.setattr("dask_strata.recorder.session._DETACH_SECONDS", 150)


def assert_whole(run: Run) -> None:
    """Assert that the record is complete, and that some counts were compared with Dask's."""
    check = run.check()
    assert check.grade == WHOLE, check.incomplete
    counted = [f for f in check.findings if f.severity == "ok"]
    assert counted, "no counter was compared"


@pytest.fixture(autouse=True)
def _no_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("DASK_DASK_STRATA", "DASK_DISTRIBUTED")) and name != _GIL_VARIABLE:
            monkeypatch.delenv(name)
