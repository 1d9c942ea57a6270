"""A small disk for the runs, which can be filled, and a folder that can be made read-only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.network import run

MEBIBYTES = 48


def why_not(folder: Path) -> str | None:
    """Return why no disk can be mounted here, or None."""
    made = run("mount", "-t", "tmpfs", "-o", "size=1m", "strata", str(folder), check=False)
    if made.returncode:
        return f"nothing can be mounted: {made.stderr.strip()}"
    run("umount", "-l", str(folder), check=False)
    return None


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk; what is on it is copied to the folder below when the block ends."""
    run("mount", "-t", "tmpfs", "-o", f"size={MEBIBYTES}m", "strata", str(folder))
    kept = folder.with_name(f"{folder.name}-kept")
    try:
        yield
    finally:
        run("cp", "-a", f"{folder}/.", str(kept), check=False)
        run("umount", "-l", str(folder))
        if kept.exists():
            folder.rmdir()
            kept.rename(folder)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte free on a disk."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Have a folder refuse new files, as one on a disk that became read-only."""
    _mount_read_only(folder)
    try:
        assert not os.access(folder, os.W_OK)
        yield
    finally:
        run("umount", "-l", str(folder))


def _mount_read_only(folder: Path) -> None:
    """Mount a folder over itself, read-only: again, if a file was opened in it between the two."""
    for _ in range(20):
        run("mount", "--bind", str(folder), str(folder))
        if run("mount", "-o", "remount,ro,bind", str(folder), check=False).returncode == 0:
            return
        run("umount", "-l", str(folder))
    raise OSError(f"{folder} is too busy to be made read-only")
