"""Read Darshan's log files: header, job, names of files, and regions of compressed bytes.

A log is a header and then regions, each compressed on its own: the job, the names, and one for
each module with records. Every number of a file is checked before it is used, and regions are
decompressed piece by piece, because their stated size may be wrong.
"""

from __future__ import annotations

import bz2
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MAGIC = 6567223

#: Names of the modules by their number in the log; formats 3.20 and 3.41 each added one.
_MODULES_3_41 = (
    *("NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE"),
    *("STDIO", "DXT_POSIX", "DXT_MPIIO", "MDHIM", "APXC", "APMPI", "HEATMAP", "DFS", "DAOS"),
)
_MODULES_3_20 = tuple(name for name in _MODULES_3_41 if name != "PNETCDF_VAR")
_MODULES_3_10 = tuple(name for name in _MODULES_3_20 if name != "H5D")


@dataclass(frozen=True)
class _Format:
    """A version of the log format.

    ``slots`` is the number of regions in the header. ``wide`` formats have 64-bit flags, and
    nanoseconds in the job's times.
    """

    modules: tuple[str, ...]
    slots: int = 16
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

#: Largest decompressed size of the job and of the names of a log; Darshan's own limits are lower.
_MAX_JOB_BYTES = 1 << 20
_MAX_NAMES_BYTES = 256 << 20


#: The year 2100. A job with a later time is damaged; nanoseconds since the epoch end in 2262.
_LATEST_SECONDS = 4_102_444_800


class LogError(Exception):
    """A log, or a part of one, cannot be read; the text is the reason, without a subject."""


@dataclass(frozen=True)
class Region:
    """Offset and length of a region in bytes, and the version of the module that wrote it."""

    offset: int
    length: int
    version: int = 0


@dataclass(frozen=True)
class DarshanLog:
    """Header and job of a log.

    Attributes
    ----------
    path : Path
        The log.
    size : int
        Its size in bytes.
    version : str
        Version of its format.
    order : str
        Byte order: ``<`` or ``>``.
    compression : int
        Darshan's number of the compression.
    names : Region
        The names of files.
    modules : mapping of str to Region
        Modules with records, including modules behind the end of a cut file.
    partial : tuple of str
        Modules whose records Darshan could not all keep, for lack of memory.
    uid : int
        User id.
    start, stop : int
        Nanoseconds since the epoch.
    nprocs : int
        Number of processes of the job.
    jobid : int
        Id from a batch system, or the process id.
    exe : str
        The whole command line.
    metadata : mapping of str to str
        Other facts that Darshan records, such as the version of its library.
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
        """Yield a region's decompressed bytes in bounded pieces. Raises LogError, OSError."""
        yield from _inflate(self.path, region, self.compression)

    def read_names(self) -> dict[int, str]:
        """Return the names of files by record id. Raises LogError, OSError."""
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
    """Read the header and the job of a log.

    Parameters
    ----------
    path : Path
        The log.

    Raises
    ------
    LogError
        The file is no Darshan log, has an unknown version, or is damaged.
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
    slots = form.slots
    flags, begin = ("Q", 24) if form.wide else ("I", 20)
    layout = struct.Struct(f"{order}{flags}{2 * (slots + 1)}Q{slots}I")
    first = begin + layout.size
    if len(head) < first:
        raise LogError("is cut in its header")
    partial, *rest = layout.unpack_from(head, begin)
    places, versions = rest[: 2 * (slots + 1)], rest[2 * (slots + 1) :]
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
        partial=tuple(form.name(i) for i in range(slots) if partial >> i & 1),
        **_job(job, order, wide=form.wide),
    )


def is_log(head: bytes) -> bool:
    r"""Return whether the first bytes of a file are those of a Darshan log.

    >>> is_log(b"3.41\0\0\0\0" + (6567223).to_bytes(8, "little")), is_log(b"PAR1")
    (True, False)
    """
    return head[8:16] in {struct.pack(f"{order}q", _MAGIC) for order in "<>"}


def _identify(head: bytes) -> tuple[str, str]:
    """Return the version of a log's format, and its byte order."""
    for order in "<>":
        if head[8:16] == struct.pack(f"{order}q", _MAGIC):
            version = head[:8].rstrip(b"\0").decode("ascii", "replace")
            if version not in _FORMATS:
                raise LogError(
                    f"has Darshan's log format {version}; supported are {', '.join(_FORMATS)}"
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
        # A file system refuses to seek beyond the largest file that it can have.
        if region.offset > os.fstat(file.fileno()).st_size:
            raise LogError("is cut")
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
    if compression == 2:  # noqa: PLR2004  Darshan's number of uncompressed regions
        yield from pieces
    elif compression == 1:
        yield from _streams(pieces, bz2.BZ2Decompressor)
    elif compression == 0:
        yield from _streams(pieces, _Zlib)
    else:
        raise LogError(f"has the compression {compression}, which does not exist in Darshan")


class _Zlib:
    """A zlib stream with the interface of `bz2.BZ2Decompressor`."""

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
    """Yield the contents of consecutive streams: each rank of a job writes a stream of its own."""
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
