"""The image-processing example, recorded: on its own cluster, on an existing one, under MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dask_strata import Run
from tests.conftest import assert_whole, rows, runs_in, wait_until
from tests.support.finalised import finalised_differences
from tests.support.processes import terminate

Strata = Callable[..., "subprocess.CompletedProcess[str]"]

APP = Path(__file__).parents[2] / "examples" / "image_processing.py"
SMALL = ("--images", "4", "--size", "64", "--folder", "work", "--report-dir", "reports")
PRELOADS = {
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
    "DASK_DISTRIBUTED__CLIENT__PRELOAD": "['dask_strata']",
}


def assert_reported(folder: Path) -> None:
    """Assert that Dask's own reports exist and have their contents."""
    assert "Dask Performance Report" in (folder / "performance-report.html").read_text()
    assert json.loads((folder / "task-stream.json").read_text())
    assert "distributed" in yaml.safe_load((folder / "dask-config.yaml").read_text())


def assert_labelled(run: Run, folder: Path) -> None:
    """Assert that each image has its labels, and that the run has their tasks."""
    assert len(list((folder / "labels").glob("labels-*.png"))) == 4
    assert rows(run, "select count(*) as n from tasks where prefix = 'save_labels'") == [{"n": 4}]
    assert_whole(run)


@pytest.mark.long
def test_on_a_cluster_of_its_own(strata: Strata, runs: Path, tmp_path: Path) -> None:
    """Mode LocalCluster, in any case, with a profile: recorded, reported, profiled."""
    options = ("--mode", "localcluster", "--yappi", "cpu", *SMALL)
    strata("record", "-o", runs, APP, *options, check=True)
    (run,) = runs_in(runs)
    assert_labelled(run, tmp_path / "work")
    assert_reported(tmp_path / "reports")
    calls = rows(run, "select sum(ncall) as n from functions where name = 'save_labels'")
    assert calls == [{"n": 4}]
    assert not (tmp_path / "reports" / "runs").exists()


@pytest.mark.release
@pytest.mark.long
def test_its_finalised_tables_are_equal(strata: Strata, runs: Path, tmp_path: Path) -> None:
    """Finalising the run of the example changes none of its tables, in whatever buckets."""
    strata("record", "--no-compact", "-o", runs, APP, "--mode", "localcluster", *SMALL, check=True)
    (run,) = runs_in(runs)
    for keys_per_bucket in (1 << 18, 20):
        assert finalised_differences(run.path, tmp_path, keys_per_bucket) == []


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start Dask's commands in the test's folder; end them after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: Any, **variables: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"log-{len(started)}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *map(str, command)],
                cwd=tmp_path,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for process in reversed(started):
        terminate(process)


@pytest.mark.release
@pytest.mark.long
def test_on_a_cluster_that_was_started_elsewhere(
    strata: Strata, runs: Path, tmp_path: Path, processes: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Mode distributed: the example connects to a cluster through its scheduler file."""
    file = tmp_path / "scheduler.json"
    at = ("--scheduler-file", file, "--dashboard-address", ":0")
    processes(
        "distributed.cli.dask_scheduler",
        "--port",
        0,
        *at,
        **PRELOADS,
        DASK_DASK_STRATA__RUNS=str(runs),
    )
    wait_until(lambda: file.exists() and file.read_text(), what="the scheduler")
    for number in range(2):
        local = ("--nthreads", 1, "--local-directory", tmp_path / f"local-{number}")
        processes("distributed.cli.dask_worker", *at, *local)
    options = ("--mode", "Distributed", "--scheduler-file", str(file), "--yappi", "wall", *SMALL)
    done = subprocess.run(
        [sys.executable, str(APP), *options],
        env={**os.environ, **PRELOADS},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = runs_in(runs)
    assert rows(run, "select count(*) as n from tasks where prefix = 'save_labels'") == [{"n": 4}]
    assert_reported(tmp_path / "reports")
    # The scheduler was started without a profile, so that the example records its own run.
    assert not len(run.functions)
    (own,) = runs_in(tmp_path / "reports" / "runs")
    assert_labelled(own, tmp_path / "work")
    assert rows(own, "select distinct clock from functions") == [{"clock": "wall"}]


@pytest.mark.release
@pytest.mark.long
def test_under_an_mpi_launcher(runs: Path, tmp_path: Path) -> None:
    """Mode MPI: scheduler, client and workers are ranks, and the job layer records them."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("NOT TRIED: mpirun is not on this machine (apt-get install openmpi-bin)")
    done = subprocess.run(
        [
            *(mpirun, "-n", "4", "--allow-run-as-root", "--oversubscribe"),
            *(sys.executable, str(APP), "--mode", "MPI", *SMALL),
        ],
        env={**os.environ, **PRELOADS, "DASK_DASK_STRATA__RUNS": str(runs)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = runs_in(runs)
    assert_labelled(run, tmp_path / "work")
    assert_reported(tmp_path / "reports")
    facts = rows(
        run,
        "select p.role, max(j.value) filter (j.name = 'mpi.rank') as rank, "
        "max(j.value) filter (j.name = 'mpi.size') as size, "
        "max(j.value) filter (j.name = 'mpi.implementation') as implementation, "
        "max(j.value) filter (j.name = 'launcher') as launcher "
        "from job j join processes p using (process) "
        "where p.role <> 'record' group by p.role, j.process order by rank, p.role",
    )
    assert {(f["role"], f["rank"]) for f in facts} == {
        ("scheduler", "0"),
        ("client", "1"),
        ("worker", "2"),
        ("worker", "3"),
    }
    assert {(f["size"], f["implementation"], f["launcher"]) for f in facts} == {
        ("4", "openmpi", "mpi")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mode", "cloud"), "must be LocalCluster or MPI or distributed"),
        (("--mode", "distributed"), "needs --scheduler-file"),
        (("--yappi", "sun"), "invalid choice"),
    ],
)
def test_wrong_options_are_reported_in_a_line(options: tuple[str, ...], message: str) -> None:
    """A wrong mode, clock, or a missing scheduler file: exit 2 with a sentence."""
    done = subprocess.run(
        [sys.executable, str(APP), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
