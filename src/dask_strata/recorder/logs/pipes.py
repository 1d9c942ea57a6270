"""The named pipes through which a nanny reads the output of its worker's process.

Their folder is readable by its user only, and its name follows from the nanny's address. There is a
pipe for each file that the nanny has as its standard output or error, named by the file's identity:
one where both are the same terminal or file, so that the order of both streams is kept. A worker
sends what it would write to one of these files through that pipe, and nothing else. It opens a pipe
only while somebody reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

#: Standard descriptors by the name of their stream, and the name of both if they are one file.
STREAMS = {"stdout": 1, "stderr": 2}
BOTH = "output"

#: Variable of a worker's environment: the folder, for use before the worker knows its nanny.
FOLDER_VARIABLE = "_DASK_STRATA_OUTPUT"

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


@dataclass(frozen=True)
class Pipe:
    """A pipe that a nanny reads.

    Attributes
    ----------
    stream : str
        stdout, stderr or output, for both.
    reading : int
        Descriptor to read it.
    standard : int
        The nanny's own descriptor to which the output belongs.
    """

    stream: str
    reading: int
    standard: int


def create(folder: Path) -> list[Pipe]:
    """Create the pipes for this process's standard output and error, as far as they are open.

    Pipes of an earlier process of the worker are replaced: who has opened them keeps them.

    Raises
    ------
    OSError
        The folder cannot be created or belongs to somebody else, or no such descriptor is open.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_own(folder):
        raise PermissionError(f"{folder} belongs to somebody else")
    streams: dict[str, tuple[str, int]] = {}
    for stream, standard in STREAMS.items():
        if (name := _name_of(standard)) is not None:
            streams[name] = (BOTH, streams[name][1]) if name in streams else (stream, standard)
    if not streams:
        raise OSError("standard output and error are closed")
    found: list[Pipe] = []
    try:
        for name, (stream, standard) in streams.items():
            new = folder / f"{name}.new"
            new.unlink(missing_ok=True)
            os.mkfifo(new, 0o600)
            reading = os.open(new, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            found.append(Pipe(stream, reading, standard))
            _enlarge(reading)
            new.rename(folder / name)
        for path in folder.iterdir():  # of files that are not this process's output any more
            if path.name not in streams:
                path.unlink()
    except OSError:
        for pipe in found:
            os.close(pipe.reading)
        raise
    return found


def remove(folder: Path) -> None:
    """Remove the pipes and their folder; who has opened them keeps them."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def open_to_write(folder: Path) -> dict[int, int]:
    """Return descriptors to write the pipes, by the standard descriptor that they stand for.

    Those of standard output and error are the same one if both are one file. There is none if
    nobody reads the pipes, or for a standard descriptor that is not one of the nanny's.
    """
    opened: dict[str, int] = {}
    found: dict[int, int] = {}
    try:
        if not _is_own(folder):
            return {}
        for standard in STREAMS.values():
            name = _name_of(standard)
            if name is None or not (folder / name).is_fifo():
                continue
            if name not in opened:
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
                opened[name] = os.open(folder / name, flags)
            found[standard] = opened[name]
        for descriptor in opened.values():
            os.write(descriptor, b"\0dask-strata:%d\0" % os.getpid())
            os.set_blocking(descriptor, True)
    except OSError:
        for descriptor in opened.values():
            os.close(descriptor)
        return {}
    return found


def is_elsewhere(folder: Path) -> bool:
    """Return whether a nanny's pipes do not fit an open standard descriptor of this process."""
    try:
        present = [path.name for path in folder.iterdir()]
    except OSError:
        return False
    names = map(_name_of, STREAMS.values())
    return bool(present) and any(name is not None and name not in present for name in names)


def identity(descriptor: int) -> tuple[int, int]:
    """Return what tells the file of a descriptor from others; raise OSError if it is closed."""
    facts = os.fstat(descriptor)
    return facts.st_dev, facts.st_ino


def _name_of(standard: int) -> str | None:
    """Return the name of the pipe for the file of a standard descriptor; None if it is closed."""
    try:
        return "{:x}-{:x}".format(*identity(standard))
    except OSError:
        return None


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
