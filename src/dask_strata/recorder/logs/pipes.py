"""The two named pipes through which a nanny reads the output of its worker's process.

Their folder is readable by its user only. Its name follows from the nanny's address, which the
worker knows. The worker opens them only while somebody reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

#: Standard descriptors by the name of their stream.
STREAMS = {"stdout": 1, "stderr": 2}

#: Bytes that a pipe holds while the nanny does not read, if the system allows.
_PIPE_BYTES = 1 << 18

#: What a worker writes first: its process id.
_HELLO = re.compile(rb"\0dask-strata:(\d+)\0")


def available() -> bool:
    """Return whether this system has named pipes."""
    return hasattr(os, "mkfifo") and hasattr(os, "getuid")


def folder_of(nanny: str) -> Path:
    """Return the folder of the pipes of a nanny.

    Parameters
    ----------
    nanny : str
        Address of the nanny.
    """
    name = hashlib.sha256(f"{os.getuid()} {nanny}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"dask-strata-output-{name}"


def create(folder: Path) -> dict[str, int]:
    """Create the pipes, and return descriptors to read them by stream.

    Pipes of an earlier process of the worker are replaced: who has opened them keeps them.

    Raises
    ------
    OSError
        The folder cannot be created, or belongs to somebody else.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_own(folder):
        raise PermissionError(f"{folder} belongs to somebody else")
    found: dict[str, int] = {}
    try:
        for stream in STREAMS:
            new = folder / f"{stream}.new"
            new.unlink(missing_ok=True)
            os.mkfifo(new, 0o600)
            found[stream] = os.open(new, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            _enlarge(found[stream])
            new.rename(folder / stream)
    except OSError:
        for descriptor in found.values():
            os.close(descriptor)
        raise
    return found


def remove(folder: Path) -> None:
    """Remove the pipes and their folder; who has opened them keeps them."""
    for stream in STREAMS:
        with contextlib.suppress(OSError):
            (folder / stream).unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def open_to_write(folder: Path) -> dict[str, int] | None:
    """Return descriptors to write the pipes by stream; None if nobody reads them."""
    found: dict[str, int] = {}
    try:
        pipes = [folder / stream for stream in STREAMS]
        if not _is_own(folder) or not all(path.is_fifo() for path in pipes):
            return None
        for stream in STREAMS:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            found[stream] = os.open(folder / stream, flags)
        for descriptor in found.values():
            os.write(descriptor, b"\0dask-strata:%d\0" % os.getpid())
            os.set_blocking(descriptor, True)
    except OSError:
        for descriptor in found.values():
            os.close(descriptor)
        return None
    return found


def duplicate(descriptor: int) -> int:
    """Return a copy of a standard descriptor, which no child process inherits."""
    import fcntl  # not on Windows

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def without_hello(data: bytes) -> tuple[bytes, int | None]:
    r"""Return what a worker wrote, and its process id if it is in there.

    >>> without_hello(b"\0dask-strata:17\0text")
    (b'text', 17)
    """
    if b"\0dask-strata:" not in data:
        return data, None
    found = _HELLO.search(data)
    return (data, None) if found is None else (_HELLO.sub(b"", data), int(found[1]))


def _is_own(folder: Path) -> bool:
    facts = folder.lstat()
    private = stat.S_IMODE(facts.st_mode) & 0o077 == 0
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and private


def _enlarge(descriptor: int) -> None:
    import fcntl  # not on Windows

    size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if size is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, size, _PIPE_BYTES)
