"""Runs for the tests of exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_strata.run.finalise import finalise
from tests.support.eventful import record_eventful
from tests.support.synthetic import small_run


@pytest.fixture(scope="session")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recorded and finalised run in which much happens; tests only read it."""
    run = record_eventful(tmp_path_factory.mktemp("eventful"))
    finalise(run)
    return run


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a run of two tasks."""
    return small_run(tmp_path / "small")
