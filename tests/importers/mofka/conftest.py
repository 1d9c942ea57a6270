"""Fixtures of the tests of the coupler's import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.coupler_files import write
from tests.support.coupler_runs import example_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files."""
    return write(tmp_path / "csv", example_files())
