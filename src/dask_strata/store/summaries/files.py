"""The files of a run: names, sizes and times, without a look into any of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dask_strata.store.manifest import ADDITIONS, MANIFEST, PARQUET, PROFILES, SEGMENTS
from dask_strata.store.safe_files import RefusedError, checksum, open_inside, read_inside

#: Name of the summary, in the Parquet folder.
SUMMARY = "summary.json"

#: Parquet that an interrupted compaction left.
OLD = f"{PARQUET}.old"

#: Entries of a run's folder that answers depend on. All others only have a size.
_READ = frozenset({MANIFEST, SEGMENTS, PARQUET, OLD, ADDITIONS, PROFILES})

#: Files whose length exceeds their size on disk by more than this consist mostly of holes, as for
#: the checksums of an index.
_LENGTH_RATIO = 4
_LENGTH_MARGIN = 64 << 20
_BLOCK = 512


class FileState(NamedTuple):
    """Size in bytes and time of the last change, in nanoseconds since the epoch."""

    size: int
    modified_ns: int


@dataclass(frozen=True)
class RunFiles:
    """The files of a run at one moment.

    Attributes
    ----------
    folder : Path
        The run's folder.
    files : mapping of str to FileState
        Files that answers depend on, by their path in the run's folder; without the summary.
    folders : frozenset of str
        Folders that answers depend on.
    size_bytes : int
        Size of all files in the folder.
    regular : bool
        Whether these entries are all files and folders that can be read.
    """

    folder: Path
    files: Mapping[str, FileState]
    folders: frozenset[str]
    size_bytes: int
    regular: bool

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of a file.

        Parameters
        ----------
        name : str
            Its path in the run's folder.

        Raises
        ------
        OSError
            It cannot be read, changed since it was listed, or consists mostly of holes.
        """
        with open_inside(self.folder, *name.split("/")) as file:
            stat = os.fstat(file.fileno())
            if (stat.st_size, stat.st_mtime_ns) != self.files[name]:
                raise RefusedError(f"{name} changed meanwhile")
            if stat.st_size > _LENGTH_RATIO * stat.st_blocks * _BLOCK + _LENGTH_MARGIN:
                raise RefusedError(f"{name} consists mostly of holes")
            return checksum(file)

    def read(self, name: str, limit: int) -> bytes:
        """Return the contents of a file.

        Parameters
        ----------
        name : str
            Its path in the run's folder.
        limit : int
            Largest size that is read, in bytes.

        Raises
        ------
        OSError
            It cannot be read, or is larger.
        """
        return read_inside(self.folder, *name.split("/"), limit=limit)


def list_files(folder: Path) -> RunFiles:
    """List the files of a run.

    Parameters
    ----------
    folder : Path
        The run's folder.
    """
    files: dict[str, FileState] = {}
    folders = set()
    size = 0
    regular = True
    waiting = [(str(folder), "", False)]
    while waiting:
        path, prefix, is_read = waiting.pop()
        try:
            with os.scandir(path) as found:
                for entry in found:
                    name = prefix + entry.name
                    matters = is_read or name in _READ
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, f"{name}/", matters))
                        if matters:
                            folders.add(name)
                    elif entry.is_file(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        size += stat.st_size
                        if matters and not is_summary(name):
                            files[name] = FileState(stat.st_size, stat.st_mtime_ns)
                    else:
                        regular &= not matters
        except OSError:
            regular &= bool(prefix) and not is_read
    return RunFiles(folder, files, frozenset(folders), size, regular)


def is_read(name: str) -> bool:
    """Return whether answers depend on a file, by its path in the run's folder.

    >>> is_read("parquet/tasks/0.parquet"), is_read("aside/worker.csv")
    (True, False)
    """
    return name.partition("/")[0] in _READ


def is_summary(name: str) -> bool:
    """Return whether a file is the summary, by its path in the run's folder."""
    # An interrupted process may have left its temporary file, whose name begins with a dot.
    return name == f"{PARQUET}/{SUMMARY}" or name.startswith(f"{PARQUET}/.{SUMMARY}.")
