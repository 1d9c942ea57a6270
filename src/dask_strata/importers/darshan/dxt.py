"""Read Darshan's traces (DXT): each read and write with its offset, its time and its thread.

A traced operation has one of three layouts, and no number in the log identifies the layout:
releases write 32 bytes, a branch appends 64 characters with the thread's identity, and later
versions append 8 bytes with it. PyDarshan reads only the first.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_strata.importers.darshan.log import DarshanLog, LogError

#: A record of a file: its id, rank, whether it is shared, host, number of writes and of reads.
_RECORD = "Qqq64sqq"
RECORD_BYTES = struct.calcsize("<" + _RECORD)

_TEXT = b"pthread_id="

#: Operations that are yielded together.
_ROWS = 1 << 17

#: Largest decompressed size of one module of one log: more than 20 million operations.
_MAX_BYTES = 2 << 30

#: Decompressed bytes from which the layout is recognised; a shorter module is recognised whole.
_ENOUGH = 4096

#: Times are seconds since the process began. More than three years are damage, and added to the
#: start of a log they might overflow nanoseconds since the epoch.
_MAX_SECONDS = 1e8


@dataclass(frozen=True)
class Layout:
    """The layout of operations.

    Attributes
    ----------
    size : int
        Bytes of one operation.
    thread : str or None
        How the thread is stored: ``text``, ``number``, or None if it is not.
    """

    size: int
    thread: str | None = None

    def dtype(self, order: str) -> np.dtype[np.void]:
        """Return the NumPy type of one operation, for a byte order ``<`` or ``>``."""
        names = ["offset", "length", "start", "stop"]
        formats = [f"{order}i8", f"{order}i8", f"{order}f8", f"{order}f8"]
        if self.thread:
            names.append("thread")
            formats.append("64u1" if self.thread == "text" else f"{order}u8")
        return np.dtype({"names": names, "formats": formats, "itemsize": self.size})


RELEASE = Layout(32)
BRANCH = Layout(96, "text")
THREADS = Layout(40, "number")


@dataclass(frozen=True)
class Operations:
    """Some operations, column by column.

    Attributes
    ----------
    file : numpy.ndarray of uint64
        Record id of the file.
    rank : numpy.ndarray of int64
        MPI rank.
    write : numpy.ndarray of bool
        Whether the operation is a write.
    offset, length : numpy.ndarray of int64
        Bytes.
    start, stop : numpy.ndarray of float64
        Seconds since the process began.
    thread : numpy.ndarray of int64
        Identity of the thread; 0 where it is not recorded.
    """

    file: npt.NDArray[np.uint64]
    rank: npt.NDArray[np.int64]
    write: npt.NDArray[np.bool_]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    start: npt.NDArray[np.float64]
    stop: npt.NDArray[np.float64]
    thread: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    def usable(self) -> Operations:
        """Return the operations with possible numbers: finite times, no negative length."""
        good = np.isfinite(self.start) & np.isfinite(self.stop) & (self.length >= 0)
        good &= (np.abs(self.start) < _MAX_SECONDS) & (np.abs(self.stop) < _MAX_SECONDS)
        if good.all():
            return self
        return Operations(*(column[good] for column in vars(self).values()))


class Trace:
    """The operations of one module of a log, read while iterating.

    Parameters
    ----------
    log : DarshanLog
        The log.
    module : str
        One of its modules, DXT_POSIX or DXT_MPIIO.
    names : collection of int
        Record ids of the files that the log names: every operation is on one of them.

    Attributes
    ----------
    hosts : set of str
        Hosts in the records; complete after iterating.
    layout : Layout or None
        Layout of the operations; set after iterating.
    dropped : int
        Number of operations left out so far because their numbers are impossible.
    """

    def __init__(self, log: DarshanLog, module: str, names: Collection[int]) -> None:
        self._log = log
        self._region = log.modules[module]
        self._names = names
        self.hosts: set[str] = set()
        self.layout: Layout | None = None
        self.dropped = 0

    def __iter__(self) -> Iterator[Operations]:
        """Yield operations. Raises OSError, and LogError after the readable part of a cut log."""
        reading = _Reading(self._log.order, self._names, self._region.version)
        failure: LogError | None = None
        try:
            for piece in self._log.inflate(self._region):
                reading.feed(piece)
                if reading.rows >= _ROWS:
                    yield self._usable(reading.take())
            reading.end()
        except LogError as error:
            failure = error
        self.hosts |= reading.hosts
        self.layout = reading.layout
        if reading.rows:
            yield self._usable(reading.take())
        if failure is not None:
            raise failure

    def _usable(self, operations: Operations) -> Operations:
        good = operations.usable()
        self.dropped += len(operations) - len(good)
        return good


class _Reading:
    """Splits decompressed bytes into records and operations."""

    def __init__(self, order: str, names: Collection[int], version: int) -> None:
        self.rows = 0
        self.hosts: set[str] = set()
        self._order = order
        self._names = names
        self._version = version
        self.layout: Layout | None = None
        self._record = struct.Struct(order + _RECORD)
        self._data = b""
        self._taken = 0
        self._ended = False
        self._file = self._rank = 0
        self._writes = self._reads = 0
        self._chunks: list[tuple[int, int, bool, npt.NDArray[np.void]]] = []

    def feed(self, piece: bytes) -> None:
        """Add bytes. Raises LogError."""
        self._taken += len(piece)
        if self._taken > _MAX_BYTES:
            raise LogError(f"has more than {_MAX_BYTES >> 30} GiB of traces")
        self._data += piece
        if self.layout is None and len(self._data) < _ENOUGH:
            return
        self._cut()

    def end(self) -> None:
        """Mark the end of the bytes. Raises LogError if they end in the middle of a record."""
        self._ended = True
        self._cut()
        if self._data or self._writes or self._reads:
            raise LogError("has traces that are cut")

    def _cut(self) -> None:
        """Split the buffered bytes into records and operations. Raises LogError."""
        if self.layout is None:
            self.layout = self._recognise()
        dtype = self.layout.dtype(self._order)
        data, position, size = self._data, 0, self.layout.size
        while True:
            if self._writes or self._reads:
                write = bool(self._writes)
                n = min(self._writes or self._reads, (len(data) - position) // size)
                if not n:
                    break
                rows = np.frombuffer(data, dtype, n, position)
                self._chunks.append((self._file, self._rank, write, rows))
                self.rows += n
                position += n * size
                if write:
                    self._writes -= n
                else:
                    self._reads -= n
            elif len(data) - position >= RECORD_BYTES:
                self._begin(data, position)
                position += RECORD_BYTES
            else:
                break
        self._data = data[position:]

    def take(self) -> Operations:
        """Return the operations read since the last call."""
        chunks, self._chunks, self.rows = self._chunks, [], 0
        lengths = [len(rows) for *_, rows in chunks]
        joined = np.concatenate([rows for *_, rows in chunks])

        native = {
            name: joined[name].astype(joined[name].dtype.newbyteorder("="))
            for name in ("offset", "length", "start", "stop")
        }
        return Operations(
            file=np.repeat(np.array([f for f, *_ in chunks], np.uint64), lengths),
            rank=np.repeat(np.array([r for _, r, *_ in chunks], np.int64), lengths),
            write=np.repeat(np.array([w for _, _, w, _ in chunks], np.bool_), lengths),
            thread=_threads(joined),
            **native,
        )

    def _begin(self, data: bytes, position: int) -> None:
        file, rank, _, host, writes, reads = self._record.unpack_from(data, position)
        if file not in self._names or writes < 0 or reads < 0:
            raise LogError("has traces of an unknown layout, or damaged ones")
        self._file, self._rank, self._writes, self._reads = file, rank, writes, reads
        name = host.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
        if name:
            self.hosts.add(name)

    def _recognise(self) -> Layout:
        """Return the first layout in which the log names the files of all records."""
        known = (THREADS, RELEASE) if self._version > 1 else (RELEASE, THREADS)
        for layout in (BRANCH, *known):
            if self._fits(layout):
                return layout
        if self._ended:  # cut: accept a layout that fits as far as the bytes reach
            self._ended = False
            return self._recognise()
        raise LogError("has traces of an unknown layout, or damaged ones")

    def _fits(self, layout: Layout) -> bool:
        data, position = self._data, 0
        marked = False
        while position + RECORD_BYTES <= len(data):
            file, _, _, _, writes, reads = self._record.unpack_from(data, position)
            if file not in self._names or writes < 0 or reads < 0:
                return False
            position += RECORD_BYTES
            if layout is BRANCH and writes + reads:
                text = data[position + 32 : position + 32 + len(_TEXT)]
                if text != _TEXT[: len(text)]:
                    return False
                marked = marked or text == _TEXT
            position += (writes + reads) * layout.size
        if layout is BRANCH:
            return marked
        return position == len(data) or not self._ended


def _threads(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    names = rows.dtype.names or ()
    if "thread" not in names:
        return np.zeros(len(rows), np.int64)
    column = rows["thread"]
    if column.ndim == 1:
        found: npt.NDArray[np.int64] = column.astype(np.uint64).view(np.int64)
        return found
    number = np.zeros(len(rows), np.int64)
    in_number = np.ones(len(rows), bool)
    for i in range(len(_TEXT), len(_TEXT) + 19):
        digit = column[:, i] - np.uint8(ord("0"))
        in_number &= digit <= 9  # noqa: PLR2004  other characters wrap around to larger numbers
        number = np.where(in_number, number * 10 + digit, number)
    return number
