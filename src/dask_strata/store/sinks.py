"""Appending frames: to a file of one's own, or through a function to whoever has one.

A sink never raises. What it could not write it keeps for a while, within a bound, tries
again with the next frame, and counts what it had to let go.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dask_strata.store.frames import is_frames

#: Frames that could not be written are kept up to this many bytes.
BACKLOG_BYTES = 4 << 20


def sync_path(path: Path) -> None:
    """Return when the disk has a file, or the names in a folder; raises OSError."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_PROCESS = re.compile(r"(worker|nanny|client)-[0-9a-f]{8}")


class Sink(ABC):
    """Where the frames of one process go.

    Attributes
    ----------
    transport : str
        ``file`` or ``comm``, as in the table `processes`.
    dropped_rows : int
        Rows that were let go so far.
    written_bytes : int
        Bytes that were handed over so far.
    trouble : str or None
        What keeps frames from being written right now.
    """

    transport: str

    def __init__(self, header: bytes) -> None:
        self.dropped_rows = 0
        self.written_bytes = 0
        self.trouble: str | None = None
        self._backlog: deque[tuple[bytes, int]] = deque([(header, 0)] if header else [])
        self._backlog_bytes = len(header)

    @abstractmethod
    def _put(self, frame: bytes) -> None:
        """Hand one frame over, whole or not at all. May raise anything."""

    def sync(self) -> None:  # noqa: B027  what goes elsewhere is on no disk of ours
        """Return when the disk has what was written, if it goes to one; raises OSError."""

    def write(self, frame: bytes, rows: int) -> None:
        """Take a frame of so many rows, after those that are still waiting."""
        self._backlog.append((frame, rows))
        self._backlog_bytes += len(frame)
        try:
            while self._backlog:
                waiting = self._backlog[0][0]
                self._put(waiting)
                self._backlog.popleft()
                self._backlog_bytes -= len(waiting)
                self.written_bytes += len(waiting)
            self.trouble = None
        except Exception as error:  # noqa: BLE001  disks and comms fail in any way; Dask must not
            text = getattr(error, "strerror", None) or error
            self.trouble = f"{type(error).__name__}: {text}"
            self._shed()

    def _shed(self) -> None:
        # The first frame of all is the header, without which nothing else can be read.
        keep = 1 if self.written_bytes == 0 else 0
        while self._backlog_bytes > BACKLOG_BYTES and len(self._backlog) > keep:
            frame, rows = self._backlog[keep]
            del self._backlog[keep]
            self._backlog_bytes -= len(frame)
            self.dropped_rows += rows

    def close(self) -> None:
        """Give back what is held; frames that are still waiting count as dropped."""
        self.dropped_rows += sum(rows for _, rows in self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0


def _append(fd: int, frame: bytes, size: int) -> None:
    """Append a frame to a file of this size; what was written in part is cut off again."""
    view = memoryview(frame)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


class FileSink(Sink):
    """Appends to one file that no other process writes to.

    Each frame goes to the operating system in one `write`, so that a process that is
    killed afterwards has lost nothing that was handed over. A frame that was written in
    part (a full disk) is cut off again before the next try.

    Parameters
    ----------
    path : Path
        The file; its folder exists.
    header : bytes
        The frame to begin with.

    Raises
    ------
    OSError
        The file cannot be made.
    """

    transport = "file"

    def __init__(self, path: Path, header: bytes) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(path, flags, 0o644)
        self._named = False
        super().__init__(header)

    def _put(self, frame: bytes) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, f"{self._path} was removed")
        _append(self._fd, frame, self.written_bytes)

    def sync(self) -> None:
        """Return when the disk has the file, the first time also its name; raises OSError."""
        os.fsync(self._fd)
        if not self._named:
            sync_path(self._path.parent)
            self._named = True

    def close(self) -> None:
        """Close the file; frames that are still waiting count as dropped."""
        super().close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RelaySink(Sink):
    """Appends the frames of other processes, each to a file of its own.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    suffix : str
        Ending of their names.
    """

    transport = "relay"

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix
        self._unsynced: set[Path] = set()
        super().__init__(b"")

    @staticmethod
    def address(process: str, frame: bytes) -> bytes:
        """Return a frame with the process that it is from in front.

        Raises
        ------
        ValueError
            The name is none that we give to processes; as a file name it could lead anywhere.
            Or these are no frames of ours.
        """
        if not _PROCESS.fullmatch(process):
            raise ValueError(f"no name of a process: {process!r}")
        if not is_frames(frame):
            raise ValueError(f"no frames, from {process}: {len(frame):,} bytes")
        return process.encode("ascii") + b"\0" + frame

    def _put(self, frame: bytes) -> None:
        process, _, data = frame.partition(b"\0")
        if process:
            path = self._folder / f"{process.decode('ascii')}{self._suffix}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(path, flags, 0o644)
            try:
                _append(fd, data, os.fstat(fd).st_size)
            finally:
                os.close(fd)
            self._unsynced.add(path)

    def sync(self) -> None:
        """Return when the disk has the files, and their names; raises OSError."""
        while self._unsynced:
            path = self._unsynced.pop()
            try:
                sync_path(path)
            except FileNotFoundError:
                raise
            except OSError:
                self._unsynced.add(path)
                raise
        sync_path(self._folder)


class CallSink(Sink):
    """Hands frames to a function that sends them elsewhere, for example over a comm.

    Parameters
    ----------
    send : callable
        Takes the bytes to append to this process's segment. May raise.
    header : bytes
        The frame to begin with.
    """

    transport = "comm"

    def __init__(self, send: Callable[[bytes], None], header: bytes) -> None:
        self._send = send
        super().__init__(header)

    def _put(self, frame: bytes) -> None:
        self._send(frame)
