"""Darshan's log files: header, job, names of files, and regions of compressed bytes.

A log is a header, then regions that each are compressed on their own: the job, the names, and
one for each module that has records. Nothing in a file is believed before it was checked, and
no region is held in memory whole, however large it says it is.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MAGIC = 6567223

#: The modules by their number in the log. One was split in two, twice.
_MODULES_3_41 = (
    *("NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE"),
    *("STDIO", "DXT_POSIX", "DXT_MPIIO", "MDHIM", "APXC", "APMPI", "HEATMAP", "DFS", "DAOS"),
)
_MODULES_3_20 = tuple(name for name in _MODULES_3_41 if name != "PNETCDF_VAR")
_MODULES_3_10 = tuple(name for name in _MODULES_3_20 if name != "H5D")


@dataclass(frozen=True)
class _Format:
    """What differs between formats: modules, room for them, 64-bit flags and nanoseconds."""

    modules: tuple[str, ...]
    room: int = 16
    wide: bool = False

    def name(self, number: int) -> str:
        """Return the name of a module."""
        return self.modules[number] if number < len(self.modules) else f"module {number}"


_FORMATS = {
    "3.10": _Format(_MODULES_3_10),
    "3.20": _Format(_MODULES_3_20),
    "3.21": _Format(_MODULES_3_20),
    "3.41": _Format(_MODULES_3_41, 64, wide=True),
}

DXT = ("DXT_POSIX", "DXT_MPIIO")

_PIECE = 1 << 18
_INFLATED_PIECE = 4 << 20

#: What the job and the names of one log may take at most; Darshan's own limits are lower.
_MAX_JOB_BYTES = 1 << 20
_MAX_NAMES_BYTES = 256 << 20


#: Times of a job are before this, the year 2100: what is later is damage, and nanoseconds since
#: the epoch end in 2262.
_LATEST_SECONDS = 4_102_444_800


class LogError(Exception):
    """A log, or a part of one, cannot be read; the text says why."""


@dataclass(frozen=True)
class Region:
    """Where a region is in the file, and the version of the module that wrote it."""

    offset: int
    length: int
    version: int = 0


@dataclass(frozen=True)
class DarshanLog:
    """What the beginning of a log says. Times are nanoseconds since the epoch.

    Attributes
    ----------
    modules : mapping of str to Region
        Modules that have records in it, also those that lie behind the end of a cut file.
    partial : tuple of str
        Modules that Darshan had no room for all records of.
    exe : str
        The whole command line.
    metadata : mapping of str to str
        What else Darshan says: version of its library, hints.
    """

    path: Path
    size: int
    version: str
    order: str
    compression: int
    names: Region
    modules: dict[str, Region]
    partial: tuple[str, ...]
    uid: int
    start: int
    stop: int
    nprocs: int
    jobid: int
    exe: str
    metadata: dict[str, str] = field(default_factory=dict)

    def cut(self, region: Region) -> bool:
        """Return whether the file ends before a region does."""
        return region.offset + region.length > self.size

    def inflate(self, region: Region) -> Iterator[bytes]:
        """Yield a region's bytes, in pieces of a bounded size. Raises LogError, OSError."""
        yield from _inflate(self.path, region, self.compression)

    def read_names(self) -> dict[int, str]:
        """Return the names by record id. Raises LogError, OSError."""
        data = _at_most(self.inflate(self.names), _MAX_NAMES_BYTES, "the names of files")
        names: dict[int, str] = {}
        position = 0
        while position + 8 < len(data):
            (number,) = struct.unpack_from(f"{self.order}Q", data, position)
            end = data.find(b"\0", position + 8)
            if end < 0:
                raise LogError("its names of files are cut")
            names[number] = data[position + 8 : end].decode("utf-8", "backslashreplace")
            position = end + 1
        return names


def open_log(path: Path) -> DarshanLog:
    """Read the beginning of a log.

    Raises
    ------
    LogError
        It is no log of Darshan's, of an unknown version, or damaged.
    OSError
        The file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(2048)
    if not head:
        raise LogError("is empty")
    version, order = _identify(head)
    form = _FORMATS[version]
    room = form.room
    flags, begin = ("Q", 24) if form.wide else ("I", 20)
    layout = struct.Struct(f"{order}{flags}{2 * (room + 1)}Q{room}I")
    first = begin + layout.size
    if len(head) < first:
        raise LogError("is cut in its header")
    partial, *rest = layout.unpack_from(head, begin)
    places, versions = rest[: 2 * (room + 1)], rest[2 * (room + 1) :]
    regions = [Region(o, n) for o, n in zip(places[::2], places[1::2], strict=True)]
    if regions[0].offset < first or regions[0].offset > 1 << 40:
        raise LogError("has a header that makes no sense")
    modules = {
        form.name(i): Region(region.offset, region.length, versions[i])
        for i, region in enumerate(regions[1:])
        if region.length
    }
    compression = head[16]
    job = _at_most(
        _inflate(path, Region(first, regions[0].offset - first), compression),
        _MAX_JOB_BYTES,
        "its job",
    )
    return DarshanLog(
        path=path,
        size=size,
        version=version,
        order=order,
        compression=compression,
        names=regions[0],
        modules=modules,
        partial=tuple(form.name(i) for i in range(room) if partial >> i & 1),
        **_job(job, order, wide=form.wide),
    )


def is_log(head: bytes) -> bool:
    """Return whether a file that begins so is a log of Darshan's."""
    return head[8:16] in {struct.pack(f"{order}q", _MAGIC) for order in "<>"}


def _identify(head: bytes) -> tuple[str, str]:
    """Return the version of a log's format, and the order of its bytes."""
    for order in "<>":
        if head[8:16] == struct.pack(f"{order}q", _MAGIC):
            version = head[:8].rstrip(b"\0").decode("ascii", "replace")
            if version not in _FORMATS:
                raise LogError(
                    f"is of Darshan's log format {version}; known are {', '.join(_FORMATS)}"
                )
            return version, order
    raise LogError("is no Darshan log" if len(head) >= 16 else "is cut in its header")  # noqa: PLR2004


def _job(data: bytes, order: str, *, wide: bool) -> dict[str, Any]:
    layout = struct.Struct(f"{order}7q1024s" if wide else f"{order}5q1024s")
    if len(data) < layout.size:
        raise LogError("is cut in its job")
    if wide:
        uid, start, start_ns, stop, stop_ns, nprocs, jobid, text = layout.unpack_from(data)
    else:
        uid, start, stop, nprocs, jobid, text = layout.unpack_from(data)
        start_ns = stop_ns = 0
    if not (0 <= start < _LATEST_SECONDS and -_LATEST_SECONDS < stop < _LATEST_SECONDS):
        raise LogError("has a job whose times make no sense")
    exe = data[layout.size :].split(b"\0", 1)[0].split(b"\n", 1)[0]
    lines = text.split(b"\0", 1)[0].decode("utf-8", "backslashreplace").splitlines()
    return {
        "uid": uid,
        "start": start * 1_000_000_000 + start_ns % 1_000_000_000,
        "stop": stop * 1_000_000_000 + stop_ns % 1_000_000_000,
        "nprocs": nprocs,
        "jobid": jobid,
        "exe": exe.decode("utf-8", "backslashreplace").strip(),
        "metadata": dict(line.split("=", 1) for line in lines if "=" in line),
    }


def _at_most(pieces: Iterator[bytes], limit: int, what: str) -> bytes:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > limit:
            raise LogError(f"has more than {limit >> 20} MiB for {what}")
    return bytes(found)


def _pieces(path: Path, region: Region) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(region.offset)
        left = region.length
        while left:
            piece = file.read(min(_PIECE, left))
            if not piece:
                raise LogError("is cut")
            left -= len(piece)
            yield piece


def _inflate(path: Path, region: Region, compression: int) -> Iterator[bytes]:
    pieces = _pieces(path, region)
    if compression == 2:  # noqa: PLR2004  Darshan's number of none at all
        yield from pieces
    elif compression == 1:
        yield from _streams(pieces, bz2.BZ2Decompressor)
    elif compression == 0:
        yield from _streams(pieces, _Zlib)
    else:
        raise LogError(f"has the compression {compression}, which Darshan does not know")


class _Zlib:
    """A stream of zlib's with the interface that the one of bz2 has."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj()

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _streams(pieces: Iterator[bytes], make: Any) -> Iterator[bytes]:
    """Yield what is in streams that follow each other: each rank of a job wrote its own."""
    stream = None
    for piece in pieces:
        data = piece
        while data or (stream is not None and not stream.eof and not stream.needs_input):
            if stream is None:
                stream = make()
            try:
                found = stream.decompress(data, _INFLATED_PIECE)
            except (zlib.error, OSError, EOFError) as error:
                raise LogError(f"has bytes that cannot be decompressed: {error}") from None
            data = b""
            if found:
                yield found
            if stream.eof:
                data, stream = stream.unused_data, None
    if stream is not None:
        raise LogError("is cut inside compressed bytes")
