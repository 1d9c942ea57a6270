"""The segment format: checksummed, compressed frames of columns, readable up to any damage.

A segment is a sequence of frames. Each is ``MAGIC``, the length and the CRC-32 of its
payload (little-endian ``uint32``), and the payload: msgpack, compressed with Zstandard.
The first payload of a segment is a mapping, its *header*, which names the process and
lists the tables and columns of this version, so that later frames can refer to
them by position and other versions can still read them. Every other payload is
``[first_seq, [[table, n_rows, [column, ...]], ...]]``.

`dask_strata.store.segments.encode` defines the columns.

Nothing in a segment is ever executed: msgpack holds plain values only.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

import msgpack
import zstandard

from dask_strata.schema import FORMAT_VERSION, RECORDED, Kind
from dask_strata.store.limits import (
    FRAME_BYTES,
    FRAME_ROWS,
    PAYLOAD_BYTES,
    SEARCH_BYTES,
    SEARCH_RATIO,
)
from dask_strata.store.segments.encode import Sparse, encode_column

MAGIC = b"\xd5STR"
_HEAD = struct.Struct("<4sII")

#: Bytes of a frame in front of its payload.
FRAME_OVERHEAD = _HEAD.size

#: Bytes read at once in the search for the next intact frame.
_FIRST_BLOCK, _LARGEST_BLOCK = 1 << 12, 1 << 20

_INT64 = 1 << 63

_TABLE_NUMBER = {name: i for i, name in enumerate(RECORDED)}
_TABLE_COLUMNS: dict[str, tuple[tuple[str, Kind], ...]] = {
    name: tuple((c.name, c.kind) for c in table.columns) for name, table in RECORDED.items()
}
_LAYOUT = {name: [c for c, _ in columns] for name, columns in _TABLE_COLUMNS.items()}


@dataclass
class Batch:
    """Rows of one table, by column.

    Attributes
    ----------
    table : str
        Name of the table.
    n : int
        Number of rows.
    columns : dict of str to list, Sparse, str, int or float
        A value per row, some of them (`Sparse`), or one value for all rows. A missing column is
        null in each row.

    Examples
    --------
    >>> batch = Batch.of_rows("job", [{"name": "queue"}, {"name": "nodes", "value": "2"}])
    >>> batch.columns
    {'name': ['queue', 'nodes'], 'value': [None, '2']}
    >>> [half.columns["name"] for half in batch.halves()]
    [['queue'], ['nodes']]
    """

    table: str
    n: int
    columns: dict[str, list[Any] | Sparse | str | int | float]

    @classmethod
    def of_rows(cls, table: str, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Turn rows into columns.

        Parameters
        ----------
        table : str
            Name of the table.
        rows : sequence of mapping
            Values by column; a missing one is null.

        Raises
        ------
        KeyError
            The table has no such column: an error in dask-strata.
        """
        names = dict.fromkeys(name for row in rows for name in row)
        unknown = names.keys() - _LAYOUT[table]
        if unknown:
            raise KeyError(f"{table} has no column {', '.join(sorted(unknown))}")
        return cls(table, len(rows), {name: [row.get(name) for row in rows] for name in names})

    def halves(self) -> tuple[Batch, Batch]:
        """Return the first and the second half of the rows."""
        middle = self.n // 2
        parts = []
        for begin, end in ((0, middle), (middle, self.n)):
            columns: dict[str, list[Any] | Sparse | str | float] = {}
            for name, column in self.columns.items():
                if isinstance(column, Sparse):
                    pairs = zip(column.rows, column.values, strict=True)
                    kept = [(row - begin, value) for row, value in pairs if begin <= row < end]
                    columns[name] = Sparse([r for r, _ in kept], [v for _, v in kept])
                else:
                    columns[name] = column[begin:end] if isinstance(column, list) else column
            parts.append(Batch(self.table, end - begin, columns))
        return parts[0], parts[1]


def _plain(value: Any) -> int | float | str | None:
    """Return a NumPy number as a Python one, and the name of any other type as text."""
    if hasattr(value, "__index__"):
        number = int(value)
        return number if -_INT64 <= number < _INT64 else None
    if hasattr(value, "__float__"):
        return float(value)
    return f"<{type(value).__name__}>"


class Encoder:
    """Make the frames of one segment. Not safe for use by two threads at once.

    Parameters
    ----------
    process : str
        Id of the process, as in the table `processes`.
    header : mapping
        Facts for the header: role, run id, and so on. Plain values only.

    Attributes
    ----------
    seq : int
        Sequence number of the next row.

    Examples
    --------
    >>> encoder = Encoder("worker-0a1b2c3d", {"role": "worker"})
    >>> segment = encoder.header() + encoder.frame([Batch("job", 1, {"name": ["queue"]})])
    >>> len(list(payloads(segment))), encoder.seq
    (2, 1)
    """

    def __init__(self, process: str, header: Mapping[str, Any]) -> None:
        self._pack = msgpack.Packer(
            use_bin_type=True, unicode_errors="backslashreplace", autoreset=True, default=_plain
        ).pack
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._header = {
            **header,
            "format": FORMAT_VERSION,
            "process": process,
            "tables": _LAYOUT,
        }
        self.seq = 0

    def header(self) -> bytes:
        """Return the frame that a segment starts with."""
        return self._frame(self._header)

    def frame(self, batches: Sequence[Batch]) -> bytes:
        """Return a frame of some batches and advance `seq` by their rows.

        Parameters
        ----------
        batches : sequence of Batch
            The rows; no batch is empty.

        Raises
        ------
        ValueError
            The frame would exceed the limits of a reader; try fewer rows.
        """
        seq = self.seq
        # A row may have several intervals, each of them a list: allow fewer rows than lists.
        if sum(batch.n for batch in batches) > FRAME_ROWS >> 3:
            raise ValueError(f"more than {FRAME_ROWS >> 3:,} rows in one frame")
        body = []
        for batch in batches:
            get = batch.columns.get
            body.append(
                [
                    _TABLE_NUMBER[batch.table],
                    batch.n,
                    [
                        None
                        if (column := get(name)) is None
                        else encode_column(kind, column, batch.n)
                        for name, kind in _TABLE_COLUMNS[batch.table]
                    ],
                ]
            )
            seq += batch.n
        frame = self._frame([self.seq, body])
        self.seq = seq
        return frame

    def _frame(self, body: Any) -> bytes:
        packed = self._pack(body)
        if len(packed) > FRAME_BYTES:
            raise ValueError(f"{len(packed):,} bytes in one frame")
        payload = self._compressor.compress(packed)
        return _HEAD.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


#: Reason of a `Damage` at the end of a segment whose last frame is incomplete.
CUT = "cut in the middle of a frame"


@dataclass(frozen=True)
class Damage:
    """A part of a segment that cannot be read: offset and length in bytes, and the reason."""

    offset: int
    length: int
    reason: str


def payloads(source: BinaryIO | bytes, start: int = 0) -> Iterator[bytes | Damage]:
    """Yield the raw payloads of a segment, and each damaged part as a `Damage`.

    After a damaged part, reading continues at the next intact frame, if there is one.

    Parameters
    ----------
    source : binary file or bytes
        The segment. A file is read frame by frame, with one frame in memory at a time; holes of
        a sparse file are skipped and reported as damage.
    start : int, optional
        Start of the first frame to read, in bytes.

    Examples
    --------
    >>> list(payloads(b"nonsense, not a segment"))
    [Damage(offset=0, length=23, reason='not the start of a frame')]
    """
    file = BytesIO(source) if isinstance(source, bytes) else source
    end = file.seek(0, os.SEEK_END)
    left = SEARCH_BYTES + SEARCH_RATIO * end
    offset = start
    for data, hole in extents(file, end):
        if data > offset:
            yield Damage(offset, data - offset, "a hole: no data was written there")
            offset = data
        while offset < hole:
            found = _read_frame(file, offset, end)
            if isinstance(found, bytes):
                yield found
                offset += _HEAD.size + len(found)
                continue
            start = offset
            offset, left = _next_intact(file, offset + 1, (hole, end), left)
            yield Damage(start, offset - start, found)
    if offset < end:
        yield Damage(offset, end - offset, "a hole: no data was written there")


def is_frames(data: bytes) -> bool:
    """Return whether bytes are one frame after the other; only their heads are checked.

    >>> is_frames(Encoder("worker-0a1b2c3d", {}).header()), is_frames(b"nonsense")
    (True, False)
    """
    offset = 0
    while offset + _HEAD.size <= len(data):
        magic, length, _ = _HEAD.unpack_from(data, offset)
        if magic != MAGIC or length > PAYLOAD_BYTES:
            return False
        offset += _HEAD.size + length
    return offset == len(data) > 0


def whole_frames(file: BinaryIO, offset: int, size: int, limit_bytes: int) -> int:
    """Return the end of the complete frames that follow an offset; only their heads are checked.

    Parameters
    ----------
    file : binary file
        The segment.
    offset : int
        Start of a frame.
    size : int
        Size of the segment in bytes.
    limit_bytes : int
        Bytes after which no further frame is included; the first one may exceed it.

    Returns
    -------
    int
        The offset itself if no complete frame follows. The bytes of a damaged segment count as
        complete, up to the limit.

    Examples
    --------
    >>> frame = Encoder("worker-0a1b2c3d", {}).header()
    >>> whole_frames(BytesIO(frame + frame[:9]), 0, len(frame) + 9, 1000) == len(frame)
    True
    """
    start = offset
    while offset + _HEAD.size <= size:
        file.seek(offset)
        magic, length, _ = _HEAD.unpack(file.read(_HEAD.size))
        if magic != MAGIC or length > PAYLOAD_BYTES:
            return min(size, max(offset, start + limit_bytes))
        end = offset + _HEAD.size + length
        if end > size or (end - start > limit_bytes and offset > start):
            break
        offset = end
    return offset


def extents(file: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each range of data in a file: holes can be of any length."""
    hole = 0
    while hole < end:
        try:
            data = os.lseek(file.fileno(), hole, os.SEEK_DATA)
            hole = min(os.lseek(file.fileno(), data, os.SEEK_HOLE), end)
        except (OSError, AttributeError) as error:
            if getattr(error, "errno", None) != errno.ENXIO:
                yield hole, end  # this file or file system does not report holes
            return
        yield data, hole


def _read_frame(file: BinaryIO, offset: int, end: int) -> bytes | str:
    """Return the payload of the frame at an offset, or the reason why there is none."""
    if offset + _HEAD.size > end:
        return CUT
    file.seek(offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return CUT
    magic, length, crc = _HEAD.unpack(head)
    if magic != MAGIC:
        return "not the start of a frame"
    if length > PAYLOAD_BYTES:
        return f"a frame with an impossible length, {length:,} bytes"
    if offset + _HEAD.size + length > end:
        return CUT
    payload = file.read(length)
    if len(payload) < length:
        return CUT
    return payload if zlib.crc32(payload) == crc else "checksum does not match"


def _next_intact(file: BinaryIO, offset: int, ends: tuple[int, int], left: int) -> tuple[int, int]:
    """Return the offset of the next intact frame, or the end, and the remaining search budget.

    ``ends`` are the end of the searched part and the end of the file; ``left`` is the number of
    bytes that the search may still examine. A crafted file can make every byte look like the
    start of a long frame: when the budget is used up, the rest of the file counts as damaged.
    """
    stop, end = ends
    block = _FIRST_BLOCK
    while offset < stop:
        file.seek(offset)
        data = file.read(min(block, stop - offset) + len(MAGIC) - 1)
        left -= len(data)
        at = data.find(MAGIC)
        while at >= 0 and left > 0:
            found = _read_frame(file, offset + at, end)
            if isinstance(found, bytes):
                return offset + at, left
            left -= file.tell() - offset - at
            at = data.find(MAGIC, at + 1)
        if left <= 0:
            return end, left
        offset += block
        block = min(2 * block, _LARGEST_BLOCK)
    return stop, left
