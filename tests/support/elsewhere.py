"""Processes that have another file system than the test, in one folder, by a mount namespace."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment

ROOT = Path(__file__).parents[2]


@functools.cache
def _unshare() -> tuple[str, ...]:
    return ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-r", "-m")


@functools.cache
def _works() -> str | None:
    try:
        subprocess.run([*_unshare(), "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None


def elsewhere(folder: Path) -> tuple[str, ...]:
    """Return the start of a command whose process has a folder of its own in the place of this one.

    There it is empty but for a folder `tmp`.
    Skip the test where processes may not do that.
    """
    if (reason := _works()) is not None:
        pytest.skip(f"a process may not have a file system of its own here: {reason}")
    script = 'mount -t tmpfs tmpfs "$0" && mkdir "$0/tmp" && exec "$@"'
    return (*_unshare(), "sh", "-c", script, str(folder))


@contextmanager
def deployed(folder: Path, *arguments: Any) -> Iterator[Deployment]:
    """Start a scheduler with these arguments and two workers, which do not see `here`."""
    here = folder / "here"
    here.mkdir()
    made = Deployment(folder, here / "runs")
    made.environment["DASK_TEMPORARY_DIRECTORY"] = str(here / "tmp")
    made.environment["PYTHONPATH"] = str(ROOT)
    before = elsewhere(here)
    try:
        made.scheduler(*arguments, before=before)
        for _ in range(2):
            made.worker(before=before)
        yield made
    finally:
        made.kill()


def set_temporary(folder: str) -> None:
    """Set the temporary folder of this process."""
    import dask

    dask.config.set({"temporary-directory": folder})


def spooled() -> list[str]:
    """Return the files of dask-strata in the temporary folder of this process."""
    import dask

    folder = Path(dask.config.get("temporary-directory"))
    return [str(p) for p in folder.rglob("*") if "dask-strata" in str(p)]


def files_in(folder: str) -> dict[str, bytes]:
    """Return the contents of the files of a run by name, but for hidden ones."""
    found = [p for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith(".")]
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}
