"""Real files outside the repository: tests that need them skip where they are absent."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT.parent / "shared" / "fixtures"


def shared_fixture(name: str) -> Path:
    """Return a file or folder of the shared fixtures; skip the test if it is absent."""
    path = FIXTURES / name
    if not path.exists():
        pytest.skip(f"NOT TESTED: the shared fixtures lack {path}")
    return path
