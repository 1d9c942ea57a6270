"""Processes that have another file system than the test, in one folder, by a mount namespace."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest


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
