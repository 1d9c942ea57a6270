"""`dask-strata doctor` without an address: clusters that scripts of this environment start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded import Strata

_PRELOADS = {
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_strata']",
    "DASK_DISTRIBUTED__CLIENT__PRELOAD": "['dask_strata']",
}


def diagnose(strata: Strata, status: int, **variables: str) -> dict[str, Any]:
    """Return the diagnosis of an environment."""
    done = strata("doctor", "--format", "json", env={**os.environ, **variables})
    assert done.returncode == status, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def test_without_a_preload_nothing_would_be_recorded(strata: Strata) -> None:
    """The verdict is exit status 1, and the remedy names the variables and the command."""
    found = diagnose(strata, 1)
    assert not found["recorded"]
    assert [p["recorded"] for p in found["processes"]] == [False] * 4
    remedy = found["problems"][0]["remedy"]
    assert "dask-strata record SCRIPT" in remedy
    assert "DASK_DISTRIBUTED__SCHEDULER__PRELOAD" in remedy


def test_the_named_remedy_switches_recording_on(strata: Strata, tmp_path: Path) -> None:
    """With the variables of the remedy all processes would be recorded, into the set folder."""
    runs = tmp_path / "elsewhere"
    found = diagnose(strata, 0, **_PRELOADS, DASK_DASK_STRATA__RUNS=str(runs))
    assert [p["role"] for p in found["processes"]] == ["scheduler", "worker", "nanny", "client"]
    assert all(p["recorded"] for p in found["processes"])
    assert found["places"][0]["folder"] == str(runs)
    assert not runs.exists()
    assert found["problems"] == []
    sources = {s["name"]: s["source"] for s in found["settings"]}
    assert sources["dask_strata.runs"] == "DASK_DASK_STRATA__RUNS"


@pytest.mark.long
def test_unknown_and_invalid_settings_are_named(strata: Strata, tmp_path: Path) -> None:
    """An unknown setting is named with a similar one, an invalid one with its reason."""
    found = diagnose(strata, 0, **_PRELOADS, DASK_DASK_STRATA__FLUSH_INTERVALL="1s")
    assert "flush-intervall" in found["problems"][0]["text"].replace("_", "-")
    assert found["problems"][0]["remedy"] == "Did you mean dask_strata.flush-interval?"
    found = diagnose(strata, 1, **_PRELOADS, DASK_DASK_STRATA__FLUSH_INTERVAL="soon")
    assert "'soon' is not a duration" in found["problems"][0]["text"]
    found = diagnose(strata, 1, **_PRELOADS, DASK_DASK_STRATA__ENABLED="false")
    assert "enabled" in found["problems"][0]["text"]
    file = tmp_path / "file"
    file.touch()
    found = diagnose(strata, 1, **_PRELOADS, DASK_DASK_STRATA__RUNS=str(file / "runs"))
    assert "cannot be written" in found["problems"][0]["text"]


@pytest.mark.long
def test_a_configuration_file_is_named_as_the_source(strata: Strata, tmp_path: Path) -> None:
    """Settings of YAML files count, and the answer names the file."""
    file = tmp_path / "config" / "strata.yaml"
    file.parent.mkdir()
    file.write_text("distributed:\n  scheduler:\n    preload: [dask_strata]\n")
    found = diagnose(strata, 0, DASK_CONFIG=str(file.parent))
    assert found["recorded"]
    assert [s["source"] for s in found["settings"]] == [str(file)]


@pytest.mark.long
def test_wrong_use_and_no_scheduler_are_errors_of_two_lines(strata: Strata) -> None:
    """Text that is no address has status 2; an address where nothing listens status 1, at once."""
    for text in ("nonsense", "foo://127.0.0.1:8786"):
        done = strata("doctor", text)
        assert done.returncode == 2
        assert "not an address" in done.stderr
        assert len(done.stderr.splitlines()) == 2
    done = strata("doctor", "--timeout", "100", "tcp://127.0.0.1:9", timeout=60)
    assert done.returncode == 1
    assert "No scheduler answers at tcp://127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) == 2
