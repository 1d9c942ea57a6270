"""Where a run is written: the folder that a client named, or a folder of the scheduler's machine.

The client puts a file with a random name into its folder. A scheduler that does not see this file
has another file system.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = ".seen-"


class Marker:
    """A file in a folder of runs by which another process recognises the folder.

    Parameters
    ----------
    runs : Path
        The folder; it is created if it does not exist.

    Attributes
    ----------
    path : str or None
        Path of the file; None if the folder exists and this process may not write to it.

    Raises
    ------
    OSError
        The folder does not exist and cannot be created.
    """

    def __init__(self, runs: Path) -> None:
        runs = runs.absolute()
        self._created = [p for p in (runs, *runs.parents) if not p.exists()]
        self.path: str | None = None
        runs.mkdir(parents=True, exist_ok=True)
        path = runs / f"{_PREFIX}{secrets.token_hex(16)}"
        with suppress(PermissionError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            self.path = str(path)

    def remove(self) -> None:
        """Remove the file, and the folders that were created for it if they are still empty."""
        with suppress(OSError):
            if self.path is not None:
                Path(self.path).unlink()
            for folder in self._created:
                folder.rmdir()


def sees(marker: str) -> bool:
    """Return whether this process sees the file of a `Marker` of another process."""
    path = Path(marker)
    return path.name.startswith(_PREFIX) and path.is_file()


def spool_folder(name: str) -> Path:
    """Return the path of a run in a new folder that only this user can open.

    The folder is in Dask's temporary folder, or else in the system's.

    Parameters
    ----------
    name : str
        Name of the run's folder.

    Raises
    ------
    OSError
        The folder cannot be created.
    """
    import dask

    temporary = dask.config.get("temporary-directory", default=None) or None
    return Path(tempfile.mkdtemp(prefix="dask-strata-", dir=temporary)) / name
