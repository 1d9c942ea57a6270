"""Fixtures of the tests on real deployments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deployments.slurm import Slurm, running_slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm with two nodes, whose jobs are killed 10 s after SIGTERM."""
    with running_slurm() as running:
        yield running
