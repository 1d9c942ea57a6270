"""`dask-strata fetch` and `dask-strata record` with a scheduler that has another file system."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import rows, wait_until
from tests.support.elsewhere import deployed, files_in, spooled

pytestmark = pytest.mark.long

Command = Callable[..., subprocess.CompletedProcess[str]]

KILLED = """
import os, signal, sys
from distributed import Client
import dask_strata

client = Client(sys.argv[1])
with dask_strata.record(sys.argv[2], client=client):
    print(sum(client.gather(client.map(abs, range(50)))), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def announced(dask_scheduler: Any) -> dict[str, Any]:
    return dask_scheduler.task_metadata.get("dask-strata-runs", {})


def test_a_run_of_a_killed_client_is_fetched(client: Client, runs: Path, strata: Command) -> None:
    """The scheduler keeps it until somebody has all of it; the copy equals it byte for byte."""
    address = client.scheduler.address
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, address, str(runs)], capture_output=True, check=False
    )
    assert killed.stdout == b"1225\n", killed.stderr
    assert killed.returncode < 0

    def ended() -> bool:
        return any(facts.get("ended") for facts in client.run_on_scheduler(announced).values())

    wait_until(ended, what="the end of the recording")
    ((run_id, facts),) = client.run_on_scheduler(announced).items()
    original = client.run_on_scheduler(files_in, folder=facts["folder"])

    done = strata("fetch", run_id, "-o", runs, check=True)
    assert "complete" in done.stderr
    # The scheduler may still wait for the killed client.
    wait_until(lambda: not client.run_on_scheduler(spooled), what="the removal of the run there")
    (copy,) = runs.iterdir()
    assert files_in(str(copy)) == original
    assert not list(copy.glob(".*"))
    run = dask_strata.open_run(copy)
    assert rows(run, "select count(*) as n from tasks") == [{"n": 50}]
    assert client.run_on_scheduler(announced) == {}
    again = strata("fetch", run_id, "-o", runs, check=True)
    assert "0 B fetched, complete" in again.stderr


SCRIPT = """
import sys
from distributed import Client

with Client(sys.argv[1]) as client:
    print(sum(client.gather(client.map(abs, range(50)))))
"""


def test_record_names_and_copies_the_run_that_the_script_joined(
    tmp_path: Path, strata: Command, script: Callable[..., Path]
) -> None:
    """The scheduler is preloaded and elsewhere; `fetch` brings what is recorded later."""
    with deployed(tmp_path, "--preload", "dask_strata") as remote, remote.client() as client:
        client.wait_for_workers(2)
        runs, address = remote.folder / "here" / "mine", client.scheduler.address
        done = strata("record", "-o", runs, script(SCRIPT), address, check=True)
        assert done.stdout == "1225\n"
        (copy,) = runs.iterdir()
        ((run_id, facts),) = client.run_on_scheduler(announced).items()
        assert f"{socket.gethostname()}:{facts['folder']}" in done.stderr
        assert str(copy.relative_to(tmp_path)) in done.stderr
        run = dask_strata.open_run(copy)
        assert rows(run, "select count(*) as n from tasks") == [{"n": 50}]
        client.gather(client.map(abs, range(100, 110)))
        count = "select count(*) as n from tasks"

        def all_there() -> bool:
            fetched = strata("fetch", run_id, "-o", runs, check=True)
            assert "for the rest" in fetched.stderr
            return rows(dask_strata.open_run(copy), count) == [{"n": 60}]

        wait_until(all_there, what="the later tasks")
        other = tmp_path / "here" / "other"
        strata("fetch", address, "--run", run_id, "-o", other, check=True)
        assert [p.name for p in other.iterdir()] == [copy.name]
        wrong = strata("fetch", address, "--run", "00000000", "-o", other)
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert "has no run 00000000" in wrong.stderr


def test_a_run_that_is_recorded_into_this_folder(tmp_path: Path, strata: Command) -> None:
    """Nothing is copied, and it is not called complete before it has ended."""
    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        with dask_strata.record(tmp_path, client=client) as run:
            files = files_in(str(run.path))
            for target in (run.manifest.run_id, cluster.scheduler_address):
                done = strata("fetch", target, "-o", tmp_path, check=True)
                assert "it is being recorded into this folder" in done.stderr
                assert done.stdout.strip() == str(run.path)
            assert files_in(str(run.path)).keys() == files.keys()
        done = strata("fetch", run.manifest.run_id, "-o", tmp_path, check=True)
        assert "0 B fetched, complete" in done.stderr


def test_errors_of_fetch(client: Client, runs: Path, strata: Command) -> None:
    """Each is one or two lines with the reason."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        for target, status, reason in (
            (nobody, 1, "No scheduler answers"),
            (client.scheduler.address, 1, "it is not recorded"),
            ("0a1b2c3d", 1, "There is no copy of run 0a1b2c3d"),
            ("nonsense", 2, "neither a scheduler's address nor the id"),
            ("gopher://x:1", 2, "not an address"),
            ("tls://127.0.0.1:1", 1, "check your TLS configuration"),
        ):
            done = strata("fetch", target, "-o", runs)
            assert done.returncode == status, done.stderr
            assert reason in done.stderr
            assert "Traceback" not in done.stderr
            assert len(done.stderr.splitlines()) <= 2
    assert not runs.exists()


def hostile(dask_scheduler: Any, name: str) -> None:
    """Make the scheduler send a file with this name."""

    async def read(**_: Any) -> dict[str, Any]:
        return {"parts": [[name, 0, b"planted", 7, 1]], "ended": True}

    dask_scheduler.handlers["dask-strata-read"] = read
    facts = {"folder": "/x/2026-run-0a1b2c3d", "host": "x", "spooled": False}
    dask_scheduler.task_metadata["dask-strata-runs"] = {"0a1b2c3d": facts}


def three_runs(dask_scheduler: Any) -> None:
    """Announce three runs: the second is one file long, the others are hostile."""
    asked = []

    async def read(run: str, **_: Any) -> dict[str, Any]:
        asked.append(run)
        name = "segments/worker-00000000.seg" if run == "1a1b2c3d" else "../planted"
        parts = [] if asked.count(run) > 1 else [[name, 0, b"", 0, 0]]
        return {"parts": parts, "ended": True}

    dask_scheduler.handlers["dask-strata-read"] = read
    dask_scheduler.task_metadata["dask-strata-runs"] = {
        run: {"folder": f"/x/2026-{run}", "host": "x", "spooled": False}
        for run in ("0a1b2c3d", "1a1b2c3d", "2a1b2c3d")
    }


def test_a_run_that_cannot_be_fetched_does_not_stop_the_others(
    client: Client, runs: Path, strata: Command
) -> None:
    """The error is that of the first, and names the other incomplete run and the whole one."""
    client.run_on_scheduler(three_runs)
    try:
        done = strata("fetch", client.scheduler.address, "-o", runs)
    finally:
        client.run_on_scheduler(harmless)
    assert done.returncode == 1
    assert "The copy of run 0a1b2c3d" in done.stderr
    assert "Also not copied in full: 2a1b2c3d." in done.stderr
    assert "other runs are here: 1a1b2c3d." in done.stderr
    assert (runs / "2026-1a1b2c3d" / "segments" / "worker-00000000.seg").is_file()
    assert not list(runs.parent.rglob("planted"))


def forged(dask_scheduler: Any) -> None:
    """Announce runs whose ids are none, and one that no handler sends."""
    facts = {"folder": "/x/2026-run", "host": "x", "spooled": False}
    for run in ("\x1b[2Jrun", "../run", ""):
        dask_scheduler.task_metadata.setdefault("dask-strata-runs", {})[run] = facts

    async def read(**_: Any) -> None:
        raise RuntimeError

    dask_scheduler.handlers["dask-strata-read"] = read


def harmless(dask_scheduler: Any) -> None:
    del dask_scheduler.handlers["dask-strata-read"]
    del dask_scheduler.task_metadata["dask-strata-runs"]


@pytest.mark.parametrize(
    "name", ["../../planted", "/tmp/planted", "segments/../../planted"], ids=["up", "root", "deep"]
)
def test_a_scheduler_cannot_write_outside_the_run(
    client: Client, runs: Path, strata: Command, name: str, request: pytest.FixtureRequest
) -> None:
    """A name that leads out of the copy is refused."""
    client.run_on_scheduler(hostile, name=name)
    request.addfinalizer(lambda: client.run_on_scheduler(harmless))
    done = strata("fetch", client.scheduler.address, "-o", runs)
    assert done.returncode == 1
    assert "is not the name of a file in a run" in done.stderr
    assert [p.name for p in runs.parent.rglob("*") if p.is_file()] == [".origin.json"]


def test_only_ids_of_runs_are_fetched_and_printed(
    client: Client, runs: Path, strata: Command, request: pytest.FixtureRequest
) -> None:
    client.run_on_scheduler(forged)
    request.addfinalizer(lambda: client.run_on_scheduler(harmless))
    done = strata("fetch", client.scheduler.address, "-o", runs)
    assert (done.returncode, done.stdout) == (1, "")
    assert "it is not recorded" in done.stderr
    assert not runs.exists()
