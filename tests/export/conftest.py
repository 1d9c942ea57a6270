"""Runs for the tests of exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventful import record_eventful
from tests.support.synthetic import small_run


@pytest.fixture(scope="session")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recorded run in which much happens; tests only read it."""
    return record_eventful(tmp_path_factory.mktemp("eventful"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a run of two tasks."""
    return small_run(tmp_path / "small")
