"""Opening what is inside of a run's folder, and nothing else.

A run may come from anywhere. A symbolic link in it could lead anywhere; a pipe or a device
could be waited on for ever. Files are opened part by part from the folder on, so that nothing
can be exchanged for a link meanwhile.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dask_strata.store.limits import NAME_CHARACTERS

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

_BLOCK = 1 << 20

_STRANGE = {
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


class RefusedError(OSError):
    """Something in a run's folder is not what is read there; `strerror` says what it is."""

    def __init__(self, what: str) -> None:
        super().__init__(None, what)


def is_name(name: object) -> bool:
    """Return whether something is the name of a file or folder, and leads nowhere else."""
    if not isinstance(name, str) or not name or name in {".", ".."}:
        return False
    return len(name) <= NAME_CHARACTERS and name.isprintable() and "/" not in name


def kind_of(path: Path) -> str | None:
    """Return what is at a path, itself and not what it leads to; None if there is nothing."""
    try:
        return _STRANGE.get(stat.S_IFMT(path.lstat().st_mode), "of no known kind")
    except (OSError, ValueError):
        return None


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder itself, not a link to one."""
    return kind_of(path) == _STRANGE[stat.S_IFDIR]


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file itself, not a link to one."""
    return kind_of(path) == _STRANGE[stat.S_IFREG]


@contextmanager
def opened_folder(home: Path, *names: str) -> Iterator[int]:
    """Give the descriptor of a folder inside of another one.

    Parameters
    ----------
    home : Path
        The outer folder: the user named it, so that it may be a link.
    *names : str
        The folders on the way, by name.

    Raises
    ------
    RefusedError
        One of them is a link, or no folder.
    OSError
        One of them is not there, or cannot be opened.
    """
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            _expect(fd, name, stat.S_IFDIR)
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def open_inside(home: Path, *names: str) -> BinaryIO:
    """Open a regular file inside of a folder for reading; the last name is the file's.

    Raises
    ------
    RefusedError
        It is no regular file, or something on the way is a link.
    OSError
        It is not there, or cannot be opened.
    """
    *folders, name = names
    with opened_folder(home, *folders) as folder:
        _expect(folder, name, stat.S_IFREG)
        file = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RefusedError(f"{name} was exchanged while it was read")
    return file


def checksum(file: BinaryIO) -> int:
    """Return the CRC-32 of an open file, which is at its start again then. Raises OSError."""
    crc = 0
    file.seek(0)
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    file.seek(0)
    return crc


def read_inside(home: Path, *names: str, limit: int) -> bytes:
    """Return the bytes of a file inside of a folder; see `open_inside`.

    Raises
    ------
    RefusedError
        It has more bytes than the limit, too.
    """
    with open_inside(home, *names) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RefusedError(f"{names[-1]} has more than {limit:,} bytes")
    return data


def entries(home: Path, *names: str) -> list[tuple[str, str]]:
    """Return the names of what is in a folder inside of another one, and what each is.

    A folder that is not there has nothing in it. Raises as `opened_folder` does.
    """
    try:
        with opened_folder(home, *names) as fd, os.scandir(fd) as found:
            return sorted((e.name, _kind(fd, e.name)) for e in found)
    except FileNotFoundError:
        return []


def _kind(folder: int, name: str) -> str:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return "gone"
    return _STRANGE.get(stat.S_IFMT(mode), "of no known kind")


def _expect(folder: int, name: str, wanted: int) -> None:
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise RefusedError(f"{name!r} is no name of a file in a run")
    found = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    if found != wanted:
        raise RefusedError(f"{name} is {_STRANGE.get(found, 'of no known kind')}")


def disk_bytes(path: Path) -> int:
    """Return how many bytes a file has on disk: holes in it, which cost nothing, do not count.

    Raises
    ------
    OSError
        It is gone.
    """
    stat = path.lstat()
    return min(stat.st_size, stat.st_blocks * 512)
