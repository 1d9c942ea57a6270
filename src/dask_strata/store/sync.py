"""Flushing a path to the disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk and return when that is done.

    Raises
    ------
    OSError
        The path cannot be opened or flushed.
    """
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
