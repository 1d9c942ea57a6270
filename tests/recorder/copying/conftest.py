"""A cluster whose processes do not see the client's folder of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.elsewhere import deployed

if TYPE_CHECKING:
    from distributed import Client

    from tests.support.deployment import Deployment


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A scheduler and two workers, each with a file system of its own in one folder."""
    folder = tmp_path_factory.mktemp("remote")
    with deployed(folder) as made:
        yield made


@pytest.fixture
def client(remote: Deployment) -> Iterator[Client]:
    """Client of the remote cluster."""
    with remote.client() as made:
        made.wait_for_workers(2)
        yield made


@pytest.fixture
def runs(remote: Deployment, request: pytest.FixtureRequest) -> Path:
    """Folder for runs, in a folder that only the client sees."""
    folder = remote.folder / "here" / request.node.name
    folder.mkdir()
    return folder / "runs"
