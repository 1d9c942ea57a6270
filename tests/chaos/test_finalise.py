"""Finalising that is killed, done twice at once, or finds a full disk loses nothing."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.run.derived import STORED
from tests.chaos.disk import filled, obstacle, small_disk
from tests.support.cases import few
from tests.support.finalised import differences

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import thousand  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 4,000 tasks, as segments."""
    return Path(thousand.write(tmp_path_factory.mktemp("segments"), workers=8, tasks=500))


def start(run: Path) -> subprocess.Popen[str]:
    """Start `dask-strata compact` in small buckets."""
    command = [sys.executable, "-m", "dask_strata", "compact", str(run)]
    command += ["--keys-per-bucket", "700"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def assert_whole(run: Path, segments: Path) -> None:
    """All rows are there, by whatever files."""
    found, expected = open_run(run), open_run(segments)
    assert found.record.rows == expected.record.rows
    assert found.check().ok
    query = "select key, state, n_attempts, compute_seconds from tasks order by key"
    assert found.rows(query) == expected.rows(query)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.release)])
def test_a_killed_finalisation_loses_nothing(seed: int, segments: Path, tmp_path: Path) -> None:
    """Killed at any moment, with SIGKILL or SIGINT, the run is whole; the next time succeeds."""
    run = Path(shutil.copytree(segments, tmp_path / "run"))
    chosen = random.Random(seed)
    sent = chosen.choice([signal.SIGKILL, signal.SIGINT])
    for _ in range(3):
        child = start(run)
        wanted = chosen.choice(["keys", "tasks", "attempts", "executions", "index.json"])
        while child.poll() is None and not list(run.glob(f".parquet-*/{wanted}")):
            time.sleep(0.001)
        time.sleep(chosen.uniform(0, 0.3))
        child.send_signal(sent)
        child.communicate()
        assert_whole(run, segments)
    done = start(run)
    assert done.communicate()[0]
    assert done.returncode == 0
    assert differences(run, segments) == []


@pytest.mark.release
def test_two_finalisations_at_once_lose_nothing(segments: Path, tmp_path: Path) -> None:
    """One of them or both succeed; the run is whole, and finalised at the end."""
    run = Path(shutil.copytree(segments, tmp_path / "run"))
    children = [start(run) for _ in range(2)]
    outputs = [child.communicate()[0] for child in children]
    assert 0 in {child.returncode for child in children}, outputs
    assert not any("Traceback" in output or "bug" in output for output in outputs), outputs
    assert_whole(run, segments)
    assert start(run).wait() == 0
    assert open_run(run)._stored == STORED


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if reason := obstacle(folder):
        warnings.warn(f"NOT TESTED: a full disk: {reason}", stacklevel=1)
        pytest.skip(f"NOT TESTED: {reason}")
    with small_disk(folder):
        yield folder


@pytest.mark.parametrize("moment", few(["start", "derived"], always={"derived"}))
def test_a_full_disk_loses_nothing(moment: str, segments: Path, disk: Path) -> None:
    """The command says that there is no room; the run is whole, and is finalised later."""
    run = Path(shutil.copytree(segments, disk / "run"))
    with ExitStack() as stack:
        if moment == "start":
            stack.enter_context(filled(disk))
        child = start(run)
        if moment == "derived":
            while child.poll() is None and not list(run.glob(".parquet-*/_bounds")):
                time.sleep(0.001)
            stack.enter_context(filled(disk))
        output = child.communicate()[0]
        assert child.returncode == 1, output
        assert "Traceback" not in output
        assert "This is a bug" not in output
        assert "space" in output.lower(), output
        assert_whole(run, segments)
    again = start(run)
    assert again.wait() == 0
    assert differences(run, segments) == []
