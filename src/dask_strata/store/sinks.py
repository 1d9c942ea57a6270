"""Appending the frames of a process: to its own file, or through a function to another process.

A sink never raises. It keeps frames that it could not write, up to a bound, retries them with
the next frame, and counts the rows of the frames that it drops.
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

from dask_strata.store.safe_files import create_file
from dask_strata.store.segments.frames import is_frames
from dask_strata.store.sync import sync_path

#: Bytes of frames that a sink keeps for a retry.
BACKLOG_BYTES = 4 << 20

_PROCESS = re.compile(r"(worker|nanny|client)-[0-9a-f]{8}")


class Sink(ABC):
    """Destination of the frames of one process.

    Parameters
    ----------
    header : bytes
        The frame that the segment starts with; empty for none.

    Attributes
    ----------
    transport : str
        ``file`` or ``comm``, as in the table `processes`.
    dropped_rows : int
        Rows dropped so far.
    written_bytes : int
        Bytes written so far.
    error : str or None
        Why the last write failed; None after a successful one.
    """

    transport: str

    def __init__(self, header: bytes) -> None:
        self.dropped_rows = 0
        self.written_bytes = 0
        self.error: str | None = None
        self._backlog: deque[tuple[bytes, int]] = deque([(header, 0)] if header else [])
        self._backlog_bytes = len(header)

    @abstractmethod
    def _put(self, frame: bytes) -> None:
        """Write one frame, whole or not at all. May raise anything."""

    def sync(self) -> None:  # noqa: B027  a sink that writes to no local disk needs no sync
        """Flush written frames to the disk, if the sink writes to one.

        Raises
        ------
        OSError
            The disk refuses.
        """

    def write(self, frame: bytes, rows: int) -> None:
        """Write a frame, after those of the backlog.

        Parameters
        ----------
        frame : bytes
            The frame.
        rows : int
            Number of rows in it, to count them if the frame must be dropped.
        """
        self._backlog.append((frame, rows))
        self._backlog_bytes += len(frame)
        try:
            while self._backlog:
                oldest = self._backlog[0][0]
                self._put(oldest)
                self._backlog.popleft()
                self._backlog_bytes -= len(oldest)
                self.written_bytes += len(oldest)
            self.error = None
        except Exception as error:  # noqa: BLE001  disks and comms fail in any way; Dask must not
            text = getattr(error, "strerror", None) or error
            self.error = f"{type(error).__name__}: {text}"
            self._drop_excess()

    def _drop_excess(self) -> None:
        # Keep the header as long as it is unwritten: no other frame can be read without it.
        keep = 1 if self.written_bytes == 0 else 0
        while self._backlog_bytes > BACKLOG_BYTES and len(self._backlog) > keep:
            frame, rows = self._backlog[keep]
            del self._backlog[keep]
            self._backlog_bytes -= len(frame)
            self.dropped_rows += rows

    def close(self) -> None:
        """Release resources; count the frames of the backlog as dropped."""
        self.dropped_rows += sum(rows for _, rows in self._backlog)
        self._backlog.clear()
        self._backlog_bytes = 0


def _append(fd: int, frame: bytes, size: int) -> None:
    """Append a frame to a file of this size; truncate the file to it again on failure."""
    view = memoryview(frame)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


class FileSink(Sink):
    """Append to one file that no other process writes to.

    Each frame is handed to the operating system in one `write`, so that a process that is
    killed afterwards loses none of the written frames. A frame that was written in part (on a
    full disk) is cut off before the next attempt.

    Parameters
    ----------
    path : Path
        The file; its folder exists, the file does not.
    header : bytes
        The frame that the segment starts with.

    Raises
    ------
    OSError
        The file cannot be created.
    """

    transport = "file"

    def __init__(self, path: Path, header: bytes) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._fd = create_file(path, flags)
        self._name_synced = False
        super().__init__(header)

    def _put(self, frame: bytes) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, f"{self._path} was removed")
        _append(self._fd, frame, self.written_bytes)

    def sync(self) -> None:
        """Flush the file to the disk, the first time also its name in the folder.

        Raises
        ------
        OSError
            The disk refuses.
        """
        os.fsync(self._fd)
        if not self._name_synced:
            sync_path(self._path.parent)
            self._name_synced = True

    def close(self) -> None:
        """Close the file; count the frames of the backlog as dropped."""
        super().close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RelaySink(Sink):
    """Append the frames of several other processes, each to its own file.

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
    def label(process: str, frame: bytes) -> bytes:
        """Return a frame with the id of its process in front, as `write` expects it.

        Parameters
        ----------
        process : str
            Id of the process that sent the frame.
        frame : bytes
            The frame, or several in a row.

        Returns
        -------
        bytes
            The id, a zero byte, and the frame.

        Raises
        ------
        ValueError
            The id is not one that the recorder gives to processes: as a file name it could lead
            out of the folder. Or the bytes are not frames.
        """
        if not _PROCESS.fullmatch(process):
            raise ValueError(f"not the id of a process: {process!r}")
        if not is_frames(frame):
            raise ValueError(f"{len(frame):,} bytes from {process} are not frames")
        return process.encode("ascii") + b"\0" + frame

    def _put(self, frame: bytes) -> None:
        process, _, data = frame.partition(b"\0")
        if process:
            path = self._folder / f"{process.decode('ascii')}{self._suffix}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = create_file(path, flags)
            try:
                _append(fd, data, os.fstat(fd).st_size)
            finally:
                os.close(fd)
            self._unsynced.add(path)

    def sync(self) -> None:
        """Flush the files written since the last call, and their names, to the disk.

        Raises
        ------
        OSError
            The disk refuses. Files that still exist are flushed again with the next call.
        """
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
    """Pass frames to a function that sends them elsewhere, for example over a comm.

    Parameters
    ----------
    send : callable
        Takes the bytes to append to this process's segment. May raise.
    header : bytes
        The frame that the segment starts with.
    """

    transport = "comm"

    def __init__(self, send: Callable[[bytes], None], header: bytes) -> None:
        self._send = send
        super().__init__(header)

    def _put(self, frame: bytes) -> None:
        self._send(frame)
