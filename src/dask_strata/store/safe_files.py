"""Files inside of a run's folder: opened there and nowhere else, created with its permissions.

A run may have been made by anyone. A symbolic link in it could lead out of the folder, and
reading a pipe or a device could block. Each path is opened one component at a time, starting
from the folder, so that no component can be replaced by a link in between.

The permissions of a run are those of its folder: each process that creates a file in it, at any
time, gives the file the permissions of the folder.
"""

from __future__ import annotations

import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dask_strata.store.limits import NAME_CHARACTERS

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

_OPEN_WRITABLE = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

_BLOCK = 1 << 20

FOLDER = "a folder"
FILE = "a file"
GONE = "gone"

_KINDS = {
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: FOLDER,
    stat.S_IFREG: FILE,
}
_UNKNOWN = "of an unknown kind"


#: Permissions of a run's folder by the setting `access`; the umask decides about others.
_MODES = {"owner": 0o700, "group": 0o750}


def create_run_folder(folder: Path, access: str) -> None:
    """Create the folder of a run; leave an existing one as it is.

    Parameters
    ----------
    folder : Path
        The folder.
    access : str
        Value of the setting `access`.

    Raises
    ------
    OSError
        The folder cannot be created.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    mode = _MODES.get(access)
    with suppress(FileExistsError):
        folder.mkdir(0o777 if mode is None else mode)
        if mode is not None:
            _set_folder_mode(folder, mode)  # the umask may have removed the group's


def share_as(folder: Path, *paths: Path) -> None:
    """Give new files and folders of a run the permissions of its folder.

    Parameters
    ----------
    folder : Path
        The run's folder.
    *paths : Path
        Files and folders in it; of a folder, not its content.
    """
    mode = folder.stat().st_mode & 0o777
    for path in paths:
        if not path.is_symlink():
            if path.is_dir():
                _set_folder_mode(path, mode)
            else:
                _set_mode(path, mode & 0o666)


def create_file(path: Path, flags: int) -> int:
    """Open a file in a run's folder; a new or empty one gets the permissions of its folder.

    Parameters
    ----------
    path : Path
        The file.
    flags : int
        Flags for `os.open`.

    Returns
    -------
    int
        The file descriptor.

    Raises
    ------
    OSError
        The file cannot be opened.
    """
    mode = path.parent.stat().st_mode & 0o666
    fd = os.open(path, flags, mode)
    if os.fstat(fd).st_size == 0:  # permissions that were set later stay
        _set_mode(fd, mode)
    return fd


def _set_folder_mode(folder: Path, mode: int) -> None:
    # Where a project's folder passes its group on, by this bit, the run's folders do so, too.
    _set_mode(folder, mode | folder.stat().st_mode & stat.S_ISGID)


def _set_mode(path: Path | int, mode: int) -> None:
    # Some file systems have no permissions, and a relayed file may belong to another user.
    with suppress(OSError):
        os.chmod(path, mode)  # noqa: PTH101  also of open files


class RefusedError(OSError):
    """An entry of a run's folder is not a plain file or folder; `strerror` is the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)


def is_name(name: object) -> bool:
    """Return whether a value is a plain name of a file or folder, without a path.

    Examples
    --------
    >>> is_name("worker-0a1b2c3d"), is_name("../elsewhere"), is_name(".."), is_name(None)
    (True, False, False, False)
    """
    if not isinstance(name, str) or not name or name in {".", ".."}:
        return False
    return len(name) <= NAME_CHARACTERS and name.isprintable() and "/" not in name


def kind_of(path: Path) -> str | None:
    """Return the kind of the entry at a path, in words; links are not followed.

    Returns
    -------
    str or None
        For example ``a file`` or ``a pipe``; None if the path does not exist.
    """
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode), _UNKNOWN)
    except (OSError, ValueError):
        return None


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; a link to a folder is not."""
    return kind_of(path) == FOLDER


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file; a link to a file is not."""
    return kind_of(path) == FILE


@contextmanager
def opened_folder(base: Path, *names: str) -> Iterator[int]:
    """Open a folder inside of another one and yield its descriptor.

    Parameters
    ----------
    base : Path
        The outer folder. It may be a link, because the user named it.
    *names : str
        Names of the folders from there to the inner one.

    Raises
    ------
    RefusedError
        One of the named folders is a link, or not a folder.
    OSError
        One of them does not exist, or cannot be opened.
    """
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            _expect(fd, name, stat.S_IFDIR)
            inner = os.open(name, _OPEN_FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def open_inside(base: Path, *names: str) -> BinaryIO:
    """Open a regular file inside of a folder for reading.

    Parameters
    ----------
    base : Path
        The outer folder.
    *names : str
        Names of the folders from there to the file, then the name of the file.

    Raises
    ------
    RefusedError
        The last name is not a regular file, or one of the folders is a link.
    OSError
        The file does not exist, or cannot be opened.
    """
    *folders, name = names
    with opened_folder(base, *folders) as folder:
        _expect(folder, name, stat.S_IFREG)
        file = os.fdopen(os.open(name, _OPEN_FILE, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RefusedError(f"{name} was replaced while it was being opened")
    return file


def writable_inside(base: Path, *names: str) -> BinaryIO:
    """Open a regular file inside of a run's folder for reading and writing.

    The file and the folders on its path are created if they do not exist, with the permissions
    of the run's folder.

    Parameters
    ----------
    base : Path
        The run's folder.
    *names : str
        Names of the folders from there to the file, then the name of the file.

    Raises
    ------
    RefusedError
        The last name exists and is not a regular file, or one of the folders is a link.
    OSError
        The file or a folder cannot be created or opened.
    """
    *folders, name = names
    mode = create_folders_inside(base, *folders) & 0o666
    with opened_folder(base, *folders) as folder:
        with suppress(FileNotFoundError):
            _expect(folder, name, stat.S_IFREG)
        fd = os.open(name, _OPEN_WRITABLE, mode, dir_fd=folder)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise RefusedError(f"{name} was replaced while it was being opened")
    if found.st_size == 0:  # permissions that were set later stay
        _set_mode(fd, mode)
    return os.fdopen(fd, "r+b")


def replace_inside(base: Path, *names: str, data: bytes) -> None:
    """Write a file inside of a run's folder, all or nothing; it gets the folder's permissions.

    Parameters
    ----------
    base : Path
        The run's folder.
    *names : str
        Names of the folders from there to the file, which exist, then the name of the file.
    data : bytes
        The contents of the file. An existing file or link of this name is replaced.

    Raises
    ------
    OSError
        The file cannot be written; then an existing one is unchanged.
    """
    *folders, name = names
    mode = base.stat().st_mode & 0o666
    temporary = f".{name}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with opened_folder(base, *folders) as folder:
        fd = os.open(temporary, flags, mode, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                _set_mode(fd, mode)
                file.write(data)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def create_folders_inside(base: Path, *names: str) -> int:
    """Create a folder inside of a run's folder, and those on its path; return their permissions.

    Parameters
    ----------
    base : Path
        The run's folder.
    *names : str
        Names of the folders from there to the inner one. Existing folders stay as they are.

    Raises
    ------
    RefusedError
        One of them is a link, or not a folder.
    OSError
        One of them cannot be created.
    """
    mode = base.stat().st_mode & 0o777
    for depth, name in enumerate(names):
        with opened_folder(base, *names[:depth]) as outer, suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=outer)
            with opened_folder(base, *names[: depth + 1]) as inner:
                _set_mode(inner, mode | os.fstat(inner).st_mode & stat.S_ISGID)
    return mode


def checksum(file: BinaryIO) -> int:
    """Return the CRC-32 of an open file and rewind it to its start.

    Raises
    ------
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import io
    >>> checksum(io.BytesIO(b"123456789")) == 0xCBF43926
    True
    """
    crc = 0
    file.seek(0)
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    file.seek(0)
    return crc


def read_inside(base: Path, *names: str, limit: int) -> bytes:
    """Return the contents of a file inside of a folder; see `open_inside`.

    Parameters
    ----------
    base : Path
        The outer folder.
    *names : str
        Names of the folders from there to the file, then the name of the file.
    limit : int
        Largest size that is read, in bytes.

    Raises
    ------
    RefusedError
        The file is larger than the limit, or `open_inside` refuses it.
    OSError
        The file does not exist, or cannot be read.
    """
    with open_inside(base, *names) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RefusedError(f"{names[-1]} has more than {limit:,} bytes")
    return data


def entries(base: Path, *names: str) -> list[tuple[str, str]]:
    """List a folder inside of another one.

    Parameters
    ----------
    base : Path
        The outer folder.
    *names : str
        Names of the folders from there to the one to list.

    Returns
    -------
    list of tuple
        Name and kind (`FILE`, `FOLDER` or another text of `kind_of`) of each entry, sorted by
        name; `GONE` for an entry that was removed meanwhile. Empty if the folder does not exist.

    Raises
    ------
    RefusedError, OSError
        As `opened_folder` raises them.
    """
    try:
        with opened_folder(base, *names) as fd, os.scandir(fd) as found:
            return sorted((e.name, _kind(fd, e.name)) for e in found)
    except FileNotFoundError:
        return []


def _kind(folder: int, name: str) -> str:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return GONE
    return _KINDS.get(stat.S_IFMT(mode), _UNKNOWN)


def _expect(folder: int, name: str, wanted: int) -> None:
    """Raise RefusedError unless the entry of an open folder has the wanted file type."""
    if "/" in name or name in {"", ".", ".."} or "\0" in name:
        raise RefusedError(f"{name!r} is not the name of a file in a run")
    found = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    if found != wanted:
        raise RefusedError(f"{name} is {_KINDS.get(found, _UNKNOWN)}")


def disk_bytes(path: Path) -> int:
    """Return the bytes that a file takes on disk; holes in a sparse file do not count.

    Raises
    ------
    OSError
        The file does not exist.
    """
    stat = path.lstat()
    return min(stat.st_size, stat.st_blocks * 512)
