"""Runs with imported Darshan logs; tests only read them."""

from __future__ import annotations

import pytest

from dask_strata import open_run
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from tests.support.darshan_runs import LAYOUTS, darshan_run, logs


@pytest.fixture(scope="session", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def joined(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = darshan_run(tmp_path_factory.mktemp("joined") / "run", layout)
    added = add_files(folder, [logs(layout)])
    assert (added.files, added.problems, added.unrecognised) == (6, [], [])
    return open_run(folder)


@pytest.fixture(scope="session")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = darshan_run(tmp_path_factory.mktemp("threaded") / "run")
    add_files(folder, [logs("dxt_v2_threads")])
    return open_run(folder)
