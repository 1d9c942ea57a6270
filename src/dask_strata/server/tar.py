"""A folder as a tar archive, made in pieces."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from dask_strata.store.safe_files import is_file, open_inside

_PIECE = 1 << 20


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield the pieces of a tar archive of a folder's regular files.

    Links, pipes and other special files are left out, as are files that are removed before their
    turn. A file that grows meanwhile is read up to its size at the start; one that shrinks is
    filled with zeros.

    Parameters
    ----------
    folder : Path
        The folder; its name is the first part of all names in the archive.
    """
    for path in sorted(folder.rglob("*")):
        if not is_file(path):
            continue
        try:
            file = open_inside(folder, *path.relative_to(folder).parts)
        except OSError:
            continue
        with file:
            info = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            status = os.fstat(file.fileno())
            info.size, info.mtime = status.st_size, int(status.st_mtime)
            info.mode = 0o644
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            left = info.size
            while left:
                piece = file.read(min(left, _PIECE)) or bytes(min(left, _PIECE))
                left -= len(piece)
                yield piece
            yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
