"""Fixtures of the tests on real deployments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployments.scripts import MakeWorkplace, Workplace
from tests.deployments.slurm import Slurm, running_slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm with two nodes, whose jobs are killed 10 s after SIGTERM."""
    with running_slurm() as running:
        yield running


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[MakeWorkplace]:
    """Make empty folders for a script; kill the processes that outlive the test."""
    made: list[Workplace] = []

    def make(environment: dict[str, str] | None = None) -> Workplace:
        made.append(Workplace(tmp_path / f"{len(made)}", {**(environment or os.environ)}))
        return made[-1]

    yield make
    for each in made:
        each.kill()
