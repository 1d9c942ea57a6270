"""Virtual environments of their own, for validators whose dependencies conflict with ours."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

#: They lie in the virtual environment of the tests, so that they are made once and end with it.
_FOLDER = Path(sys.prefix) / "strata-own-venvs"


def own_venv(name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of a virtual environment that has some packages; make it if necessary.

    Its other commands, such as `roc-validator`, lie beside that Python. Other processes that need
    it at the same time wait until it is made. The test is skipped if the packages cannot
    be installed.
    """
    text = "\n".join([sys.version, *requirements])
    folder = _FOLDER / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, python, requirements)
            (folder / "complete").touch()
    return python


def own_environment() -> dict[str, str]:
    """Return the environment for processes of such a Python: without our packages and caches."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "XDG_CACHE_HOME"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _make(folder: Path, python: Path, requirements: Sequence[str]) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    slow = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "-q", *requirements],
    ]
    fast = [
        [str(uv), "venv", "-q", "--clear", "--python", sys.executable, str(folder)],
        [str(uv), "pip", "install", "-q", "--python", str(python), *requirements],
    ]
    error = "" if uv is None else _failure(fast)
    if uv is None or error:
        error = _failure(slow)  # pip may be configured for other indexes
    if error:
        pytest.skip(f"cannot install {', '.join(requirements)}: {error[-300:]}")


def _failure(commands: list[list[str]]) -> str:
    """Run commands until one fails; return the error, or an empty text."""
    for command in commands:
        ended = subprocess.run(
            command, env=own_environment(), capture_output=True, text=True, timeout=900, check=False
        )
        if ended.returncode:
            return ended.stderr or f"exit status {ended.returncode}"
    return ""
