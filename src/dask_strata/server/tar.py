"""A folder as a tar archive, made as it is read."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from dask_strata.store.safe_files import is_file, open_inside

_PIECE = 1 << 20


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield the pieces of an archive of a folder's files, and of nothing else.

    Links, pipes and whatever else is no file are left out, and what is gone meanwhile. A file
    that grows meanwhile is taken as long as it was when it was begun.
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
            about = os.fstat(file.fileno())
            info.size, info.mtime = about.st_size, int(about.st_mtime)
            info.mode = 0o644
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            left = info.size
            while left:
                piece = file.read(min(left, _PIECE)) or bytes(min(left, _PIECE))
                left -= len(piece)
                yield piece
            yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
