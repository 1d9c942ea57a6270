"""`dask-strata doctor ADDRESS`: what a client finds out about a running cluster."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.cli.recorded import Strata
from tests.conftest import wait_until
from tests.recorder.test_versions import HIDE
from tests.support.deployment import PRELOAD, Deployment
from tests.support.leftovers import assert_nothing_left

pytestmark = pytest.mark.long

_OTHER = "def dask_setup(server):\n    pass\n"


def diagnose(strata: Strata, deployment: Deployment, status: int, workers: int) -> dict[str, Any]:
    """Return the diagnosis of a cluster with so many workers, through its scheduler file."""
    with deployment.client() as client:
        wait_until(lambda: len(client.nthreads()) == workers, what="the workers")
    done = strata("doctor", deployment.file, "--format", "json")
    assert done.returncode == status, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def test_a_recorded_cluster_and_one_worker_without_the_package(
    strata: Strata, deployment: Deployment
) -> None:
    """All processes are recorded, then one worker cannot be: it is named, with the remedy."""
    deployment.scheduler(*PRELOAD)
    deployment.worker("--name", "with")
    found = diagnose(strata, deployment, 0, 1)
    assert found["recorded"]
    states = {(p["role"], p["recorded"], p["writes"]) for p in found["processes"]}
    assert states == {
        ("scheduler", True, "files"),
        ("worker", True, "files"),
        ("nanny", True, "files"),
        ("client", False, None),
    }
    assert {p["versions"]["dask_strata"] for p in found["processes"]} == {dask_strata.__version__}
    place = found["places"][0]
    assert (Path(place["folder"]) / "run.json").is_file()
    assert place["visible_here"]

    hidden = deployment.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE)
    deployment.environment["PYTHONPATH"] = str(hidden)
    deployment.worker("--name", "without", "--no-nanny")
    found = diagnose(strata, deployment, 1, 2)
    assert not found["recorded"]
    lacking = [p for p in found["processes"] if p["role"] == "worker" and not p["recorded"]]
    assert len(lacking) == 1
    assert "dask_strata" in lacking[0]["note"]
    assert lacking[0]["address"] in found["problems"][0]["text"]
    shown = strata("doctor", deployment.file).stdout
    assert "recorded in part: 1 process is not" in shown


def test_a_worker_whose_version_cannot_answer_is_unknown(
    strata: Strata, deployment: Deployment
) -> None:
    """An earlier version lacks the functions that the command calls; the worker may be recorded."""
    hidden = deployment.folder / "hidden"
    hidden.mkdir()
    whole = """name.partition(".")[0] == "dask_strata\""""
    assert whole in HIDE
    text = HIDE.replace(whole, 'name == "dask_strata.recorder.doctor.process_facts"')
    (hidden / "sitecustomize.py").write_text(text)
    deployment.scheduler(*PRELOAD)
    deployment.environment["PYTHONPATH"] = str(hidden)
    deployment.worker("--no-nanny")
    found = diagnose(strata, deployment, 1, 1)
    ((recorded, note),) = [
        (p["recorded"], p["note"]) for p in found["processes"] if p["role"] == "worker"
    ]
    assert (recorded, note) == (None, "its version of dask-strata cannot answer")
    assert "Install dask-strata" in found["problems"][0]["remedy"]
    shown = strata("doctor", deployment.file).stdout
    assert "is recorded, but of 1 process this is unknown." in shown


def test_an_ignored_preload_is_named_with_the_recipe(
    strata: Strata, deployment: Deployment
) -> None:
    """A preload on the command line hides that of the configuration (dask/distributed#7342)."""
    (deployment.folder / "other.py").write_text(_OTHER)
    deployment.environment["DASK_DISTRIBUTED__SCHEDULER__PRELOAD"] = "['dask_strata']"
    deployment.scheduler("--preload", "other.py")
    found = diagnose(strata, deployment, 1, 0)
    assert [p["recorded"] for p in found["processes"] if p["role"] == "scheduler"] == [False]
    assert "Dask ignored it" in found["problems"][0]["text"]
    assert "--preload other.py" in found["problems"][0]["text"]
    assert "--preload dask_strata" in found["problems"][0]["remedy"]


def test_the_settings_of_the_scheduler_are_the_reason(
    strata: Strata, deployment: Deployment
) -> None:
    """A scheduler with the preload that may not record, or cannot, gives its own reason."""
    file = deployment.folder / "a file"
    file.touch()
    deployment.environment["DASK_DASK_STRATA__RUNS"] = str(file / "runs")
    deployment.scheduler(*PRELOAD)
    found = diagnose(strata, deployment, 1, 0)
    assert "cannot be written" in found["problems"][0]["text"]
    assert str(file) in found["problems"][0]["text"]


def test_nothing_is_left_behind(client: Client, tmp_path: Path) -> None:
    """The function of a client answers for recorded and plain clusters, and leaves no trace."""
    plain = dask_strata.doctor(client)
    assert not plain.recorded
    assert "started without dask-strata" in str(plain)
    with dask_strata.record(tmp_path / "runs", client=client):
        recorded = dask_strata.doctor(client)
        assert recorded.recorded
        assert {p.recorded for p in recorded.processes} == {True}
        assert "is recorded." in str(recorded)
    assert not dask_strata.doctor(client).recorded
    assert_nothing_left(client, tmp_path / "runs")


def test_an_asynchronous_client_awaits_the_answer() -> None:
    """With an asynchronous client the function returns an awaitable."""

    async def answer() -> bool:
        async with (
            LocalCluster(
                n_workers=0, processes=False, dashboard_address=":0", asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            found = await dask_strata.doctor(client)
            return bool(found.recorded)

    assert not asyncio.run(answer())


def test_another_service_is_not_waited_for(strata: Strata) -> None:
    """A port where something else listens is an error after the time limit, not a hang."""
    accepted: list[Any] = []  # the connections stay open
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            accepted.extend(silent.accept() for _ in range(2))

        threading.Thread(target=accept, daemon=True).start()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = strata("doctor", "--timeout", 1, address, timeout=60)
    for connection, _ in accepted:
        connection.close()
    assert done.returncode == 1
    assert "no answer of Dask within 1 s" in done.stderr
