"""Finalising on a Dask cluster: the same files as on one machine, or an unchanged run."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from dask_strata import compact, open_run
from dask_strata.cluster import bucket as bucket_module
from dask_strata.cluster import finalise as finalise_module
from dask_strata.cluster.finalise import finalise_on
from dask_strata.errors import StrataError, UsageError
from dask_strata.run.finalise import finalise
from tests.conftest import wait_until
from tests.support.deployment import Deployment

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import thousand

pytestmark = pytest.mark.long

TASKS, KEYS_PER_BUCKET = 60, 30
N_BUCKETS = 2 * TASKS // KEYS_PER_BUCKET


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in segments."""
    return thousand.write(tmp_path_factory.mktemp("recorded"), workers=2, tasks=TASKS)


@pytest.fixture(scope="module")
def finalised(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, finalised in this process."""
    folder = tmp_path_factory.mktemp("finalised") / "run"
    shutil.copytree(recorded, folder)
    finalise(folder, keys_per_bucket=KEYS_PER_BUCKET)
    return folder


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the run in segments."""
    return Path(shutil.copytree(recorded, tmp_path / "run"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of two worker processes."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_equal_files(folder: Path, expected: Path) -> None:
    """Compare all rows of all Parquet files; threads of DuckDB add numbers in any order."""
    names = {str(p.relative_to(expected)) for p in expected.rglob("*.parquet")}
    assert {str(p.relative_to(folder)) for p in folder.rglob("*.parquet")} == names
    assert f"parquet/tasks/part-{N_BUCKETS - 1}.parquet" in names
    for name in sorted(names):
        rows, others = (pq.read_table(f / name).to_pylist() for f in (folder, expected))
        assert len(rows) == len(others), name
        for row, other in zip(rows, others, strict=True):
            assert row.keys() == other.keys()
            for column, value in row.items():
                if isinstance(value, float):
                    assert math.isclose(value, other[column], rel_tol=1e-9), (name, column)
                else:
                    assert value == other[column], (name, column)


def test_each_file_has_the_rows_of_one_machine(run: Path, finalised: Path, client: Client) -> None:
    """The workers write the same files, row for row, and the segments are deleted."""
    steps: list[str] = []
    done = finalise_on(client, run, steps.append, KEYS_PER_BUCKET)
    assert_equal_files(run, finalised)
    assert done.segments_kept == 0
    assert not list((run / "segments").iterdir())
    assert {p.name for p in run.iterdir()} == {"parquet", "run.json", "segments"}
    assert {p.name for p in (run / "parquet").iterdir()} == {
        p.name for p in (finalised / "parquet").iterdir()
    }
    assert f"bucket {N_BUCKETS - 1} of {N_BUCKETS}" in steps
    assert len(open_run(run).tasks) == 2 * TASKS


def test_compact_takes_a_client(run: Path, client: Client) -> None:
    """`dask_strata.compact` finalises on the cluster of a client, or in this process."""
    rows = compact(run, client=client).rows
    assert compact(open_run(run)).rows == rows
    with pytest.raises(UsageError, match="is a URL"):
        compact("s3://bucket/run")


def test_an_asynchronous_client_is_an_error(run: Path) -> None:
    """Its event loop cannot be blocked."""

    class Asynchronous:
        asynchronous = True

    with pytest.raises(UsageError, match="asynchronous"):
        compact(run, client=Asynchronous())


def strata(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "dask_strata", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.release
def test_the_command_takes_the_address_of_a_scheduler(
    run: Path, finalised: Path, client: Client
) -> None:
    """`compact --scheduler ADDRESS` writes the same files."""
    address = client.scheduler.address
    few = ("--keys-per-bucket", KEYS_PER_BUCKET)
    done = strata("compact", run, "--scheduler", address, *few)
    assert done.returncode == 0, done.stderr
    assert "rows: " in done.stdout
    assert_equal_files(run, finalised)


def test_a_scheduler_that_is_not_reachable_changes_nothing(run: Path) -> None:
    """Nothing listens: the error names the address, and nothing was written."""
    before = files_of(run)
    done = strata("compact", run, "--scheduler", "tcp://127.0.0.1:1")
    assert done.returncode == 1
    assert "No scheduler answers at tcp://127.0.0.1:1" in done.stderr
    assert strata("compact", run, "--scheduler", "nowhere").returncode == 2
    assert files_of(run) == before


def test_workers_that_see_another_folder_are_named(
    run: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose file system has no such folder is an error before any work."""
    before = files_of(run)

    def hide(*arguments: Any, **options: Any) -> Any:
        function, scratch, *rest = arguments
        return original(function, f"{scratch}-elsewhere", *rest, **options)

    original = client.run
    monkeypatch.setattr(client, "run", hide)
    with pytest.raises(StrataError, match="No such file") as error:
        finalise_on(client, run, keys_per_bucket=KEYS_PER_BUCKET)
    assert "file system that they share" in str(error.value)
    assert files_of(run) == before


def test_a_worker_compares_the_token_and_the_version(tmp_path: Path) -> None:
    """A folder of the same name with another token is another folder."""
    (tmp_path / bucket_module.TOKEN).write_text("theirs")
    own = bucket_module.build()
    assert "another folder" in str(bucket_module.look(str(tmp_path), "ours", own, "a"))
    assert bucket_module.look(str(tmp_path), "theirs", own, "a") is None
    assert "instead of 0.0" in str(bucket_module.look(str(tmp_path), "theirs", "0.0", "a"))


def test_workers_of_another_version_are_named(
    run: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other definitions of derived tables would give other rows."""
    before = files_of(run)
    monkeypatch.setattr(finalise_module, "build", lambda: "9.9 (definitions 0)")
    with pytest.raises(StrataError, match=r"it has dask-strata .* instead of 9\.9"):
        finalise_on(client, run, keys_per_bucket=KEYS_PER_BUCKET)
    assert files_of(run) == before


def killed_at(step: str, processes: list[int]) -> Any:
    """Return a function for the progress that kills processes at one step, once."""

    def progress(text: str) -> None:
        if text.startswith(step):
            while processes:
                os.kill(processes.pop(), signal.SIGKILL)

    return progress


@pytest.mark.release
def test_a_worker_that_is_killed_is_replaced(run: Path, finalised: Path, tmp_path: Path) -> None:
    """Other workers compute its buckets, and the result is the same."""
    deployment = Deployment(tmp_path, tmp_path / "runs")
    try:
        deployment.scheduler()
        workers = [deployment.worker("--no-nanny") for _ in range(2)]
        with deployment.client() as client:
            client.wait_for_workers(2, timeout=60)
            kill = killed_at("bucket 1 of", [workers[0].pid])
            finalise_on(client, run, kill, KEYS_PER_BUCKET)
            assert len(client.nthreads()) == 1
    finally:
        deployment.kill()
    assert_equal_files(run, finalised)


def test_a_cluster_without_workers_leaves_the_run_unchanged(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers are killed in the middle: an error, and nothing is deleted."""
    monkeypatch.setattr(finalise_module, "_NO_WORKER_SECONDS", 3.0)
    before = files_of(run)
    deployment = Deployment(tmp_path, tmp_path / "runs")
    try:
        deployment.scheduler()
        worker = deployment.worker("--no-nanny")
        with deployment.client() as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(StrataError, match="no worker for 3 s") as error:
                finalise_on(client, run, killed_at("bucket 1 of", [worker.pid]), KEYS_PER_BUCKET)
    finally:
        deployment.kill()
    assert "unchanged" in str(error.value)
    assert files_of(run) == before


def test_a_scheduler_that_is_killed_leaves_the_run_unchanged(run: Path, tmp_path: Path) -> None:
    """The client loses its connection: an error, and nothing is deleted."""
    before = files_of(run)
    deployment = Deployment(tmp_path, tmp_path / "runs")
    try:
        scheduler = deployment.scheduler()
        deployment.worker("--no-nanny")
        with deployment.client() as client:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(StrataError, match="on the cluster"):
                finalise_on(client, run, killed_at("bucket 1 of", [scheduler.pid]), KEYS_PER_BUCKET)
    finally:
        deployment.kill()
    assert files_of(run) == before


def test_ctrl_c_leaves_the_run_unchanged(run: Path, client: Client) -> None:
    """The command ends with 130, and its workers leave nothing in the run's folder."""
    before = files_of(run)
    command = [
        sys.executable, "-m", "dask_strata", "compact", str(run), "--scheduler",
        client.scheduler.address, "--keys-per-bucket", "5",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(run.glob(".parquet-*/_definitions/part-*")), what="a bucket")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip().endswith("Interrupted.")
    time.sleep(2)  # tasks that run cannot be stopped, and must not write any more
    assert files_of(run) == before
    assert compact(run, client=client).rows > 0
