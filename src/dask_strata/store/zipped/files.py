"""The files of a run in a bundle, for lists: nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dask_strata.store.safe_files import RefusedError
from dask_strata.store.summaries.files import FileState, RunFiles, is_read, is_summary
from dask_strata.store.zipped.copy import (
    MODIFIED_NS,
    identity_of,
    is_of_run,
    open_bundle,
    open_file,
)
from dask_strata.store.zipped.directory import Member, blocks


@dataclass(frozen=True)
class BundleFiles(RunFiles):
    """The files of a run in a bundle; `folder` is the bundle.

    Attributes
    ----------
    members : mapping of str to Member
        All files in the bundle.
    identity : tuple
        Value that changes if the bundle is replaced.
    """

    members: Mapping[str, Member]
    identity: tuple[int, ...]

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of a file, which is compared with the file's bytes."""
        self._read(name, None)
        return self.members[name].crc

    def read(self, name: str, limit: int) -> bytes:
        """Return the contents of a file."""
        return self._read(name, limit)

    def _read(self, name: str, limit: int | None) -> bytes:
        """Return the contents of a file; none, if there is no limit for them."""
        if name not in self.members:
            raise FileNotFoundError(name)
        if limit is not None and self.members[name].size > limit:
            raise RefusedError(f"{name} has more than {limit:,} bytes")
        with open_file(self.folder) as file:
            if identity_of(os.fstat(file.fileno())) != self.identity:
                raise RefusedError("the bundle was replaced meanwhile")
            parts = blocks(file, self.members[name])
            if limit is not None:
                return b"".join(parts)
            for _ in parts:
                pass
        return b""


def bundle_files(path: Path) -> BundleFiles:
    """List the files of a run in a bundle, with the times that a copy of it gives them.

    Parameters
    ----------
    path : Path
        The bundle.

    Raises
    ------
    NotARunError
        It cannot be read, or is none.
    """
    file, members = open_bundle(path)
    with file:
        status = os.fstat(file.fileno())
    names = [name for name in members if is_of_run(name) and is_read(name)]
    folders = {
        "/".join(parts[:depth])
        for parts in (name.split("/") for name in names)
        for depth in range(1, len(parts))
    }
    files = {
        name: FileState(members[name].size, MODIFIED_NS) for name in names if not is_summary(name)
    }
    return BundleFiles(
        path,
        files,
        frozenset(folders),
        status.st_size,
        regular=True,
        members=members,
        identity=identity_of(status),
    )
