"""Two hosts with different disks: network namespaces, where one cannot see the run's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.network import A, Network, network, obstacle
from tests.conftest import rows, runs_in, wait_until
from tests.deployments.scripts import STRATA, MakeWorkplace, Workplace

pytestmark = pytest.mark.long

_BIN = Path(sys.executable).parent

_SCRIPT = """
    if __name__ == "__main__":
        with Client(sys.argv[1]) as client:
            work(client)
            client.shutdown()
"""

_ATTACHES = """
    import dask_strata

    if __name__ == "__main__":
        with Client(sys.argv[1]) as client:
            with dask_strata.record("runs", client=client, name="pipeline"):
                work(client)
            client.shutdown()
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    """Two hosts with a line between them."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("NOT TESTED: hosts need root and unshare")
    if (reason := obstacle()) is not None:
        pytest.skip(f"NOT TESTED: {reason}")
    with network() as made:
        yield made


def start(place: Workplace, where: list[str], log: str, *command: Any) -> subprocess.Popen[bytes]:
    """Start a process of the cluster, whose own folder is not the script's if it is hidden."""
    with (place.folder / log).open("wb") as out:
        return subprocess.Popen(
            [*where, *map(str, command)],
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


def start_cluster(place: Workplace, hosts: Network, hidden: dict[str, Path], *preload: str) -> str:
    """Start a scheduler on host a and two workers on b; return the scheduler's address."""
    log = place.folder / "scheduler.log"
    start(
        place,
        hosts.inside("a", hide=hidden.get("a")),
        log.name,
        *(_BIN / "dask", "scheduler", "--host", A, "--port", 8786, "--dashboard-address", ":0"),
        *preload,
    )
    wait_until(lambda: b"Scheduler at" in log.read_bytes(), what="the scheduler")
    address = f"tcp://{A}:8786"
    for number in range(2):
        start(
            place,
            hosts.inside("b", hide=hidden.get("b")),
            f"worker-{number}.log",
            *(_BIN / "dask", "worker", address, "--nthreads", 1, "--dashboard-address", ":0"),
            *("--local-directory", "/tmp"),
        )
    return address


def assert_comes_home(place: Workplace, *command: Any) -> None:
    """Assert that a script on host b brings the run from a to its own folder, whole."""
    place.command(*command)
    run = place.assert_recorded()
    roles = rows(run, "select role, count(*) as n from processes group by role order by role")
    found = {r["role"]: r["n"] for r in roles}
    assert found | {"record": 1} == {"client": 1, "nanny": 2, "record": 1} | {
        "scheduler": 1,
        "worker": 2,
    }
    place.assert_nothing_left()


def test_workers_on_a_host_with_another_disk_are_recorded_whole(
    hosts: Network, workplace: MakeWorkplace
) -> None:
    """They send their records over Dask's connections; `doctor` shows that."""
    place = workplace()
    (place.folder / "runs").mkdir()
    address = start_cluster(place, hosts, {"b": place.runs}, "--preload", "dask_strata")
    script = place.script(_SCRIPT)
    here = hosts.inside("a")
    wait_until(
        lambda: "2 workers" in place.command(*here, STRATA, "doctor", address).stdout,
        what="two workers, as `doctor` sees them",
    )
    assert "Dask's connection" in place.command(*here, STRATA, "doctor", address).stdout
    place.command(*here, sys.executable, script.name, address)
    run = place.assert_recorded(None)
    transports = rows(run, "select role, transport from processes where role = 'worker'")
    assert [r["transport"] for r in transports] == ["comm", "comm"]
    place.assert_nothing_left()


def test_a_recorded_script_gets_the_run_of_a_scheduler_with_another_disk(
    hosts: Network, workplace: MakeWorkplace
) -> None:
    """`dask-strata record` brings the run home, although only the scheduler's host has it."""
    place = workplace()
    (place.folder / "runs").mkdir()
    address = start_cluster(place, hosts, {"a": place.runs})
    script = place.script(_SCRIPT)
    command = (*hosts.inside("b"), STRATA, "record", "-q", script.name, address)
    assert_comes_home(place, *command)
    assert len(runs_in(place.runs)) == 1


def test_a_client_gets_the_run_of_a_scheduler_with_another_disk(
    hosts: Network, workplace: MakeWorkplace
) -> None:
    """`record(client=…)` brings the run into the folder that the client named."""
    place = workplace()
    (place.folder / "runs").mkdir()
    address = start_cluster(place, hosts, {"a": place.runs})
    script = place.script(_ATTACHES)
    assert_comes_home(place, *hosts.inside("b"), sys.executable, script.name, address)
