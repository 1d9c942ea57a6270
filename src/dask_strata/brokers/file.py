"""Streams in a file: one message in JSON a line.

Several processes may append to one file: each batch is written under a lock, which ends with the
process that holds it. A batch that was cut off by the end of its process leaves a torn last line,
which the next writer removes.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from dask_strata.brokers.address import Address
from dask_strata.brokers.broker import Payload, Sink, Source, batches
from dask_strata.brokers.message import MESSAGE_BYTES, Gap, Message, Unreadable, decode
from dask_strata.errors import BrokerError, MessageError, UsageError

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BLOCK = 1 << 20

#: Seconds between two looks at a file that may grow.
_POLL_SECONDS = 0.2

#: Seconds that a batch waits for the batch of another process.
_LOCK_SECONDS = 10

#: The fields before a row, in the order in which `encode` writes them.
_HEAD = re.compile(
    rb'\{"strata":\d+,"run":"((?:[^"\\]|\\.)*)","kind":"row","table":"[^"\\]*",'
    rb'"process":"((?:[^"\\]|\\.)*)","seq":(\d{1,19}),'
)


def _open(path: str, flags: int) -> int:
    """Open a regular file; raise BrokerError for anything else."""
    try:
        fd = os.open(path, flags | _FLAGS, 0o600)
    except OSError as error:
        raise BrokerError(f"{path} cannot be opened: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is not a file.", hint="Name a file: file:PATH")
    return fd


class FileSink(Sink):
    """Append messages to a file.

    Parameters
    ----------
    address : Address
        The file.
    run_id : str
        The run.
    """

    def __init__(self, address: Address, run_id: str) -> None:
        self._path = address.path
        self._run = run_id

    def send(self, messages: Sequence[Message]) -> None:
        """Append messages; after an error none of the failed batch is in the file."""
        for batch in batches(messages):
            data = b"".join(message.data + b"\n" for message in batch)
            fd = _open(self._path, os.O_RDWR | os.O_CREAT)
            try:
                _lock(fd, self._path)
                size = _cut_torn_line(fd)
                try:
                    _write(fd, data, size)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            except OSError as error:
                raise BrokerError(f"{self._path} cannot be written: {error.strerror}.") from None
            finally:
                os.close(fd)

    def last(self) -> dict[str, int] | None:
        """Return the positions, from the contents of the file."""
        found: dict[str, int] = {}
        try:
            fd = _open(self._path, os.O_RDONLY)
        except BrokerError:
            if not os.path.lexists(self._path):
                return found
            raise
        with open(fd, "rb") as file:  # noqa: PTH123  a descriptor
            for line in _lines(file):
                place = _position(line) if line.endswith(b"\n") else None
                if place is not None and place[0] == self._run:
                    found[place[1]] = max(place[2], found.get(place[1], -1))
        return found

    def forget(self) -> None:
        """Do nothing: the positions are those in the file, and rows can be appended again."""

    def close(self) -> None:
        """Do nothing: the file is open only while a batch is written."""


def _lock(fd: int, path: str) -> None:
    """Lock a file; raise BrokerError if that takes long: the process with the lock may be stopped.

    Raises
    ------
    OSError
        The file system has no locks.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{path} is locked by another process for more than {_LOCK_SECONDS} s."
                ) from None
            time.sleep(_POLL_SECONDS / 10)
        else:
            return


def _cut_torn_line(fd: int) -> int:
    """Remove a last line that has no end; return the size of the file."""
    size = end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return end


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def _position(line: bytes) -> tuple[str, str, int] | None:
    """Return run, process and number of the row of a line; None of other lines."""
    found = _HEAD.match(line)
    if found is not None and b"\\" not in found[1] + found[2]:
        try:
            return found[1].decode(), found[2].decode(), int(found[3])
        except UnicodeDecodeError:
            return None
    try:
        message = decode(line)
    except MessageError:
        return None
    if message.process is None or message.last is None:
        return None
    return message.run, message.process, message.last


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines from here on, without reading a long one at once; of it, the beginning."""
    while line := file.readline(MESSAGE_BYTES + 2):
        yield line
        while line and not line.endswith(b"\n") and len(line) > MESSAGE_BYTES:
            line = file.readline(MESSAGE_BYTES + 2)


class FileSource(Source):
    """Read the lines of a file.

    Parameters
    ----------
    address : Address
        The file.
    """

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._closed = threading.Event()

    def payloads(self, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        """Yield the lines of the file; a file that was cut is read again after a `Gap`."""
        while follow and not os.path.lexists(self._path):
            if self._closed.wait(_POLL_SECONDS):
                return
        with open(_open(self._path, os.O_RDONLY), "rb") as file:
            yield from self._of_file(file, follow=follow)

    def _of_file(self, file: BinaryIO, *, follow: bool) -> Iterator[Payload | Unreadable | Gap]:
        number = 0
        end = None if follow else os.fstat(file.fileno()).st_size
        while not self._closed.is_set():
            start = file.tell()
            if end is not None and start >= end:
                return
            line = file.readline(MESSAGE_BYTES + 2)
            if line.endswith(b"\n"):
                number += 1
                if line.strip():
                    yield Payload(f"line {number}", line[:-1])
            elif len(line) > MESSAGE_BYTES:
                number += 1
                yield Unreadable(line[:_BLOCK], f"line {number}", "the line is too long")
                _skip_line(file)
            elif not follow:
                if line.strip():
                    yield _torn(line, number + 1)
                return
            else:
                file.seek(start)
                self._closed.wait(_POLL_SECONDS)
                if os.fstat(file.fileno()).st_size < start:
                    yield Gap(f"line {number}", None)
                    file.seek(0)
                    number = 0

    def close(self) -> None:
        """End a waiting iterator."""
        self._closed.set()


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(_BLOCK)) and not rest.endswith(b"\n"):
        pass


def _torn(line: bytes, number: int) -> Payload | Unreadable:
    """Return a last line without an end: a message, if it is whole."""
    try:
        decode(line)
    except MessageError:
        return Unreadable(line[:_BLOCK], f"line {number}", "the last line is cut off")
    return Payload(f"line {number}", line)
