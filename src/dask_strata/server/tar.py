"""A folder as a tar archive, made in pieces."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dask_strata.store.safe_files import is_file, is_folder, open_inside

_PIECE = 1 << 20


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield the pieces of a tar archive of a folder: its folders and regular files.

    They have their permissions, so that a run which only its owner can read remains so where the
    archive is extracted. Links, pipes and other special files are left out, as are files that are
    removed before their turn. A file that grows meanwhile is read up to its size at the start; one
    that shrinks is filled with zeros.

    Parameters
    ----------
    folder : Path
        The folder; its name is the first part of all names in the archive.
    """
    for path in [folder, *sorted(folder.rglob("*"))]:
        if path == folder or is_folder(path):
            with suppress(OSError):
                yield _head(folder, path, path.stat())
            continue
        if not is_file(path):
            continue
        try:
            file = open_inside(folder, *path.relative_to(folder).parts)
        except OSError:
            continue
        with file:
            status = os.fstat(file.fileno())
            yield _head(folder, path, status)
            left = status.st_size
            while left:
                piece = file.read(min(left, _PIECE)) or bytes(min(left, _PIECE))
                left -= len(piece)
                yield piece
            yield bytes(-status.st_size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _head(folder: Path, path: Path, status: os.stat_result) -> bytes:
    """Return the header of a file or folder in the archive."""
    info = tarfile.TarInfo((Path(folder.name) / path.relative_to(folder)).as_posix())
    info.mtime = int(status.st_mtime)
    info.mode = status.st_mode & 0o777
    if stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    else:
        info.size = status.st_size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
