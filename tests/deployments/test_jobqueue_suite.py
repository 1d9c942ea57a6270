"""dask-jobqueue's own tests, which its wheel contains, pass the same with and without recording."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.conftest import runs_in

dask_jobqueue = pytest.importorskip(
    "dask_jobqueue", reason="NOT TESTED: dask-jobqueue is not installed"
)

pytestmark = pytest.mark.long

_PRELOAD = "['dask_strata']"


def outcomes(folder: Path, **variables: str) -> dict[str, str]:
    """Return the outcome of each of dask-jobqueue's tests that need no batch system."""
    folder.mkdir()
    # Where a Slurm is installed but not configured, `sinfo` fails while the tests are collected.
    path = f"{_without_slurm(folder / 'bin')}:{Path(sys.executable).parent}"
    environment = {**os.environ, "PATH": path, "TMPDIR": str(folder), **variables}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-c", "/dev/null", "--rootdir", str(folder), "--junitxml", "outcomes.xml"),
            *("--pyargs", "dask_jobqueue"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    report = folder / "outcomes.xml"
    assert report.exists(), done.stdout + done.stderr
    return {
        f"{case.get('classname')}.{case.get('name')}": case[0].tag
        if len(case) and case[0].tag in ("failure", "error", "skipped")
        else "passed"
        for case in ET.parse(report).iter("testcase")
    }


def _without_slurm(folder: Path) -> Path:
    """Return a folder with the system's programs except those of Slurm."""
    folder.mkdir()
    for name in ("sh", "bash", "env", "uname", "id", "cat", "python3"):
        for place in ("/bin", "/usr/bin"):
            if (Path(place) / name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(place) / name)
    return folder


@pytest.mark.release
@pytest.mark.timeout(600)
def test_the_tests_of_dask_jobqueue_pass_the_same(tmp_path: Path) -> None:
    """Recording changes no outcome of dask-jobqueue's own tests."""
    plain = outcomes(tmp_path / "plain")
    runs = tmp_path / "runs"
    recorded = outcomes(
        tmp_path / "recorded",
        DASK_DISTRIBUTED__SCHEDULER__PRELOAD=_PRELOAD,
        DASK_DISTRIBUTED__CLIENT__PRELOAD=_PRELOAD,
        DASK_DASK_STRATA__RUNS=str(runs),
    )
    assert recorded == plain
    assert sum(outcome == "passed" for outcome in plain.values()) > 40
    assert len(runs_in(runs)) > 10
