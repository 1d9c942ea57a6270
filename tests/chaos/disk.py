"""A small disk for the runs, which a trial can fill, and folders that it can make read-only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.network import run

MEBIBYTES = 48


def obstacle(folder: Path) -> str | None:
    """Return the reason why no disk can be mounted on this machine, or None."""
    made = run("mount", "-t", "tmpfs", "-o", "size=1m", "strata", str(folder), check=False)
    if made.returncode:
        return f"mount failed: {made.stderr.strip()}"
    run("umount", "-l", str(folder), check=False)
    return None


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk; at the end of the block its files are copied to the folder itself."""
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
    """Fill a disk for the duration of the block."""
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
    """Make a folder read-only for the duration of the block."""
    _mount_read_only(folder)
    try:
        assert not os.access(folder, os.W_OK)
        yield
    finally:
        run("umount", "-l", str(folder))


def _mount_read_only(folder: Path) -> None:
    """Mount a folder over itself, read-only; retry if a file was opened in between."""
    for _ in range(20):
        run("mount", "--bind", str(folder), str(folder))
        if run("mount", "-o", "remount,ro,bind", str(folder), check=False).returncode == 0:
            return
        run("umount", "-l", str(folder))
    raise OSError(f"{folder} is in use and cannot be made read-only")
