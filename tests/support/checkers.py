"""Programs of others that check exports, each in a virtual environment of its own.

Their pins exclude the project's. An environment is made once, in a cache folder of the user.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SECONDS = 600


def _cache() -> Path:
    found = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(found) / "dask-strata-tests"


def _uv() -> str | None:
    """Return the path of uv, which is much faster than pip."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def environment(*requirements: str) -> Path:
    """Return the folder of programs of an environment with some packages; skip if it fails."""
    wanted = "\n".join([sys.version, sys.executable, *requirements])
    folder = _cache() / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            errors = [_made(way, folder / "venv", requirements) for way in (_with_uv, _with_pip)]
            if all(errors):
                pytest.skip(f"NOT TESTED: {' '.join(requirements)} cannot be installed: {errors}")
            (folder / "complete").touch()
    return folder / "venv" / "bin"


def _made(way, venv: Path, requirements: tuple[str, ...]) -> str | None:
    """Make the environment, unless it is there; return the error."""
    if (venv.parent / "made").exists():
        return None
    shutil.rmtree(venv, ignore_errors=True)
    try:
        way(venv, requirements)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{error} {getattr(error, 'stderr', '') or ''}"[-500:]
    (venv.parent / "made").touch()
    return None


def _with_uv(venv: Path, requirements: tuple[str, ...]) -> None:
    uv = _uv()
    if uv is None:
        raise FileNotFoundError("uv is not installed")
    _run(uv, "venv", "-q", "--python", sys.executable, str(venv))
    _run(uv, "pip", "install", "-q", "--python", str(venv / "bin" / "python"), *requirements)


def _with_pip(venv: Path, requirements: tuple[str, ...]) -> None:
    _run(sys.executable, "-m", "venv", str(venv))
    _run(str(venv / "bin" / "python"), "-m", "pip", "install", "-q", *requirements)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
