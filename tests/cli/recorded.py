"""Helpers of the tests of `dask-strata record`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dask_strata import Run
from tests.conftest import rows, runs_in

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


Script = Callable[..., Path]


DASK = Path(sys.executable).with_name("dask")


def shell_status(returncode: int) -> int:
    """Return a status of `subprocess` as a shell shows it."""
    return 128 - returncode if returncode < 0 else returncode


def only_run(folder: Path) -> Run:
    """Return the one run in a folder."""
    found = runs_in(folder)
    assert len(found) == 1, found
    return found[0]


def keys_of(run: Run) -> set[str]:
    """Return the keys of a run's tasks."""
    return {row["key"] for row in rows(run, "select key from tasks")}


def assert_all_ended(run: Run) -> None:
    """Assert that each process on record has written its last row."""
    assert run.state == "complete"
    assert not rows(run, "select * from processes where exit_reason is null or stop is null")
