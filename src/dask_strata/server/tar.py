"""A folder as a tar archive, made as it is read."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 20


def tar_of(folder: Path) -> Iterator[bytes]:
    """Yield the pieces of an archive of a folder's files; links are left out.

    A file that grows meanwhile is taken as long as it was when it was begun; one that is gone
    is left out.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            file = path.open("rb")
        except OSError:
            continue
        with file:
            info = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            info.size = path.stat().st_size
            info.mtime = int(path.stat().st_mtime)
            info.mode = 0o644
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            left = info.size
            while left:
                piece = file.read(min(left, _PIECE)) or bytes(min(left, _PIECE))
                left -= len(piece)
                yield piece
            yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
