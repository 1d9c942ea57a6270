"""Runs that were imported from the coupler's files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.shared_fixtures import shared_fixture

pytestmark = pytest.mark.long

Strata = Callable[..., subprocess.CompletedProcess[str]]


NAMES = ("D2024-04-19_19:01:00_R1_W8", "D2024-04-19_19:01:02_R6_W8")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The two runs of PMDA."""
    folder = tmp_path_factory.mktemp("imported") / "runs"
    for name in NAMES:
        command = [sys.executable, "-m", "dask_strata", "import", "-o", folder]
        subprocess.run([*command, shared_fixture(f"PMDA/{name}")], check=True)
    return sorted(folder.iterdir())


def test_two_imported_runs(strata: Strata, imported: list[Path]) -> None:
    done = strata("compare", *imported, "--format", "json", check=True)
    found = json.loads(done.stdout)
    [verdict] = found["verdicts"]
    assert verdict["sentence"].endswith("With one run a side, noise is not known.")
    parts = sum(part["difference_seconds"] for part in found["parts"])
    assert parts == pytest.approx(verdict["difference_seconds"], abs=1e-6)
    seconds = [
        json.loads(strata("show", run, "--json", check=True).stdout)["makespan_seconds"]
        for run in imported
    ]
    assert verdict["difference_seconds"] == pytest.approx(seconds[1] - seconds[0], abs=1e-6)
    [hosts] = found["facts"]
    assert hosts["name"] == "hosts"


def test_a_run_without_executions(strata: Strata, imported: list[Path], tmp_path: Path) -> None:
    """The run of XGBoost has transfers only."""
    folder = tmp_path / "transfers"
    strata("import", "-o", folder, shared_fixture("XGBoost/D2024-04-19_17:14:53_R20_W8"))
    [transfers] = folder.iterdir()
    done = strata("compare", imported[0], transfers)
    assert done.returncode == 1
    assert "has no execution of a task on record" in done.stderr
