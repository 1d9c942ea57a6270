r"""The segment format: checksummed, compressed frames of columns, readable up to any cut.

A segment is a sequence of frames. Each is ``MAGIC``, the length and the CRC-32 of its
payload (little-endian ``uint32``), and the payload: msgpack, compressed with Zstandard.
The first payload of a segment is a mapping, its *header*, which names the process and
lists the tables and columns as this version knows them, so that later frames can refer to
them by position and a later version can still read them. Every other payload is
``[first_seq, [[table, n_rows, [column, ...]], ...]]``.

A column is null (no value in any row) or a list that starts with how it is encoded:

====================  ==========================================================
``[CONST, v]``        the same value in each row
``[PLAIN, [v, …]]``   one value a row
``[DELTA, t, [d…]]``  integers as the first one and the differences
``[DICT, [v…], b]``   distinct values, then their positions as little-endian
                      ``uint8``, ``uint16`` or ``uint32``, by the number of values
``[SPARSE, [i…], [v…]]``  rows that have a value, and the values
====================  ==========================================================

Nothing in a segment is ever executed: msgpack holds plain values only.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Any

import msgpack
import zstandard

from dask_strata.schema import FORMAT_VERSION, RECORDED, Kind

MAGIC = b"\xd5STR"
_HEAD = struct.Struct("<4sII")

#: What a frame has beside its payload, in bytes.
FRAME_OVERHEAD = _HEAD.size

#: A frame whose payload claims to unpack to more than this is taken as damaged.
MAX_UNPACKED_BYTES = 1 << 30

_INT64 = 1 << 63

CONST, PLAIN, DELTA, DICT, SPARSE = range(5)

_TABLE_NUMBER = {name: i for i, name in enumerate(RECORDED)}
_TABLE_COLUMNS: dict[str, tuple[tuple[str, Kind], ...]] = {
    name: tuple((c.name, c.kind) for c in table.columns) for name, table in RECORDED.items()
}
_LAYOUT = {name: [c for c, _ in columns] for name, columns in _TABLE_COLUMNS.items()}


@dataclass
class Sparse:
    """Values of a column that most rows have no value in."""

    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def put(self, row: int, value: Any) -> None:
        """Give one row its value; rows come in ascending order, null is left out."""
        if value is not None:
            self.rows.append(row)
            self.values.append(value)


@dataclass
class Batch:
    """Rows of one table, by column. A column that is left out is null in each row."""

    table: str
    n: int
    columns: dict[str, list[Any] | Sparse | str | int | float]

    @classmethod
    def of_rows(cls, table: str, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Turn rows into columns. Unknown column names are a mistake of ours: KeyError."""
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


class FrameError(ValueError):
    """A payload whose checksum is right but whose content is not of this format."""


def _positions(column: list[Any], values: list[Any]) -> bytes:
    number = {value: i for i, value in enumerate(values)}
    code = "B" if len(values) <= 1 << 8 else "H" if len(values) <= 1 << 16 else "I"
    positions = array(code, map(number.__getitem__, column))
    if sys.byteorder == "big":
        positions.byteswap()
    return positions.tobytes()


def _encode_column(kind: Kind, column: list[Any] | Sparse | str | float) -> Any:
    if isinstance(column, Sparse):
        return [SPARSE, column.rows, column.values] if column.rows else None
    if not isinstance(column, list):
        return [CONST, column]
    first = column[0]
    if kind in ("text", "key"):
        values = list(dict.fromkeys(column))
        if len(values) == 1:
            return None if first is None else [CONST, first]
        if len(values) * 2 > len(column):
            return [PLAIN, column]
        return [DICT, values, _positions(column, values)]
    if kind == "time" and None not in column and max(column) - min(column) < _INT64:
        return [DELTA, first, list(map(sub, column[1:], column))]
    if kind != "intervals" and column.count(first) == len(column):
        return None if first is None else [CONST, first]
    return [PLAIN, column]


def _decode_column(encoded: Any, n: int) -> list[Any]:
    if encoded is None:
        return [None] * n
    how = encoded[0]
    if how == CONST:
        return [encoded[1]] * n
    if how == PLAIN:
        column = encoded[1]
    elif how == DELTA:
        value = encoded[1]
        column = [value]
        for difference in encoded[2]:
            value += difference
            column.append(value)
    elif how == DICT:
        _, values, raw = encoded
        positions = array("B" if len(values) <= 1 << 8 else "H" if len(values) <= 1 << 16 else "I")
        positions.frombytes(raw)
        if sys.byteorder == "big":
            positions.byteswap()
        column = [values[i] for i in positions]
    elif how == SPARSE:
        column = [None] * n
        for row, value in zip(encoded[1], encoded[2], strict=True):
            column[row] = value
    else:
        raise FrameError(f"unknown column encoding {how!r}")
    if not isinstance(column, list) or len(column) != n:
        raise FrameError("a column has not as many values as its table has rows")
    return column


def _plain(value: Any) -> int | float | str | None:
    """Return a number of NumPy's as Python's, anything else that is odd as text."""
    if hasattr(value, "__index__"):
        number = int(value)
        return number if -_INT64 <= number < _INT64 else None
    if hasattr(value, "__float__"):
        return float(value)
    return f"<{type(value).__name__}>"


class Encoder:
    """Makes the frames of one segment. Not safe for use by two threads at once.

    Parameters
    ----------
    process : str
        Id of the process, the same as in ``processes``.
    header : mapping
        Facts for the header: role, run id, and so on. Plain values only.
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
        """Return the frame of these batches; none of them is empty."""
        seq = self.seq
        body = []
        for batch in batches:
            get = batch.columns.get
            body.append(
                [
                    _TABLE_NUMBER[batch.table],
                    batch.n,
                    [
                        None if (column := get(name)) is None else _encode_column(kind, column)
                        for name, kind in _TABLE_COLUMNS[batch.table]
                    ],
                ]
            )
            seq += batch.n
        frame = self._frame([self.seq, body])
        self.seq = seq
        return frame

    def _frame(self, body: Any) -> bytes:
        payload = self._compressor.compress(self._pack(body))
        return _HEAD.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


#: What a damaged part at the end of a segment is, when it was not written to its end.
CUT = "cut in the middle of a frame"


@dataclass(frozen=True)
class Damage:
    """A part of a segment that could not be read."""

    offset: int
    length: int
    reason: str


def payloads(data: bytes | memoryview) -> Iterator[bytes | Damage]:
    """Yield the raw payloads of a segment, and each damaged part as a `Damage`.

    After a damaged part reading goes on at the next intact frame, if there is one.
    """
    view = memoryview(data)
    offset, end = 0, len(view)
    while offset < end:
        reason = _check_frame(view, offset)
        if reason is None:
            _, length, _ = _HEAD.unpack_from(view, offset)
            yield bytes(view[offset + _HEAD.size : offset + _HEAD.size + length])
            offset += _HEAD.size + length
            continue
        start = offset
        offset = _next_intact(bytes(view), offset + 1)
        yield Damage(start, offset - start, reason)


def _check_frame(view: memoryview, offset: int) -> str | None:
    if offset + _HEAD.size > len(view):
        return CUT
    magic, length, crc = _HEAD.unpack_from(view, offset)
    if magic != MAGIC:
        return "not the start of a frame"
    if offset + _HEAD.size + length > len(view):
        return CUT
    if zlib.crc32(view[offset + _HEAD.size : offset + _HEAD.size + length]) != crc:
        return "checksum does not match"
    return None


def _next_intact(data: bytes, offset: int) -> int:
    view = memoryview(data)
    while (offset := data.find(MAGIC, offset)) >= 0:
        if _check_frame(view, offset) is None:
            return offset
        offset += 1
    return len(data)


def unpack(payload: bytes) -> Any:
    """Return what a payload holds.

    Raises
    ------
    FrameError
        It is not compressed msgpack, or unreasonably large.
    """
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= MAX_UNPACKED_BYTES:
            raise FrameError(f"a frame claims to hold {size} bytes")  # noqa: TRY301  passed on below
        raw = zstandard.ZstdDecompressor().decompress(payload)
        return msgpack.unpackb(raw, strict_map_key=False, raw=False)
    except FrameError:
        raise
    except (zstandard.ZstdError, ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"{type(error).__name__}: {error}") from error


def decode(
    body: Any, layout: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, int, int, dict[str, list[Any]]]]:
    """Yield table, first seq, number of rows and columns of each batch of a frame.

    Parameters
    ----------
    body : list
        As `unpack` returned it.
    layout : mapping of table name to column names
        From the segment's header.

    Raises
    ------
    FrameError
        The content is not of this format.
    """
    tables = list(layout)
    try:
        seq, batches = body
        for number, n, encoded in batches:
            table = tables[number]
            names = layout[table]
            columns = {
                name: _decode_column(column, n)
                for name, column in zip(names, encoded, strict=True)
                if column is not None
            }
            yield table, seq, n, columns
            seq += n
    except FrameError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise FrameError(f"{type(error).__name__}: {error}") from error
