"""The directory of a bundle, read strictly: what another zip reader might guess is refused here.

Only members that are stored as they are count: none of them is larger than its part of the file,
and no two share bytes, so that a bundle never takes more than its own size.
"""

from __future__ import annotations

import operator
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from dask_strata.store.limits import NAME_CHARACTERS, ZIP_DIRECTORY_BYTES, ZIP_MEMBERS
from dask_strata.store.safe_files import RefusedError, is_name

#: Bytes that are read at a time.
BLOCK = 1 << 20

#: Most parts of the path of a member.
_DEPTH = 6

_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sLQL")
_LOCATOR_SIGNATURE = b"PK\x06\x07"
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_SIGNATURE = b"PK\x06\x06"
_ENTRY = struct.Struct("<4s6H3L5H2L")
_ENTRY_SIGNATURE = b"PK\x01\x02"
_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_SIGNATURE = b"PK\x03\x04"

_ZIP64 = 0x0001
_16, _32 = 0xFFFF, 0xFFFFFFFF

_STORED = 0
_ENCRYPTED = 0x0001
_DESCRIPTOR = 0x0008
_UTF8 = 0x0800
#: Bits 1 and 2 only mean something for compressed members.
_KNOWN_FLAGS = _DESCRIPTOR | _UTF8 | 0x0006

#: The file may have more bytes than disk blocks by this much: for file systems that compress.
_LENGTH_RATIO = 4
_LENGTH_MARGIN = 64 << 20
_DISK_BLOCK = 512

_DAMAGED = "it is damaged or incomplete: "


@dataclass(frozen=True)
class Member:
    """A file in a bundle.

    Attributes
    ----------
    name : str
        Its path, with ``/`` between the parts.
    size : int
        Its size in bytes.
    crc : int
        Its CRC-32, by the directory.
    start : int
        Position of its first byte in the bundle.
    """

    name: str
    size: int
    crc: int
    start: int

    @property
    def parts(self) -> list[str]:
        """The parts of its path."""
        return self.name.split("/")


@dataclass(frozen=True)
class _Entry:
    """An entry of the central directory."""

    raw_name: bytes
    flags: int
    size: int
    crc: int
    header: int
    mode: int


def read_directory(file: BinaryIO) -> dict[str, Member]:
    """Return the files in a bundle, by name.

    Parameters
    ----------
    file : file
        The bundle.

    Raises
    ------
    RefusedError
        The file is not a zip file, is damaged, or is one that dask-strata does not write.
    OSError
        It cannot be read.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("it is not a file")
    if status.st_size > _LENGTH_RATIO * status.st_blocks * _DISK_BLOCK + _LENGTH_MARGIN:
        raise RefusedError("it consists mostly of holes")
    count, size, start = _end(file, status.st_size)
    if count > ZIP_MEMBERS:
        raise RefusedError(f"it has more than {ZIP_MEMBERS:,} members")
    if size > ZIP_DIRECTORY_BYTES:
        raise RefusedError(f"its directory has more than {ZIP_DIRECTORY_BYTES >> 20} MiB")
    entries = sorted(_entries(_read(file, start, size), count), key=lambda entry: entry.header)
    found: dict[str, Member] = {}
    folders: set[str] = set()
    stops = [*(entry.header for entry in entries[1:]), start]
    for entry, stop in zip(entries, stops, strict=False):
        name = _name(entry)
        is_folder = name.endswith("/")
        parts = name.removesuffix("/").split("/")
        _check_name(name, parts)
        _check_mode(name, entry, is_folder=is_folder)
        first = _first_byte(file, name, entry, stop)
        if is_folder:
            folders.add(name[:-1])
        elif name in found:
            raise RefusedError(f"it has two members of the name {name}")
        else:
            found[name] = Member(name, entry.size, entry.crc, first)
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if both := folders & found.keys():
        raise RefusedError(f"{min(both)} is a file and a folder in it")
    return found


def blocks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member; compare their checksum at the end.

    Raises
    ------
    RefusedError
        The bytes are not those that the directory has the checksum of.
    OSError
        They cannot be read.
    """
    crc, position, stop = 0, member.start, member.start + member.size
    while position < stop:
        block = os.pread(file.fileno(), min(BLOCK, stop - position), position)
        if not block:
            raise RefusedError(f"{_DAMAGED}{member.name} is cut off")
        crc = zlib.crc32(block, crc)
        position += len(block)
        yield block
    if crc != member.crc:
        raise RefusedError(f"{_DAMAGED}{member.name} does not match its checksum")


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    """Return a part of the file, which the caller knows to be inside of it."""
    data = b""
    while len(data) < size:
        more = os.pread(file.fileno(), size - len(data), start + len(data))
        if not more:
            raise RefusedError(f"{_DAMAGED}it was cut off")
        data += more
    return data


def _end(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Return the number of entries, the size and the position of the directory."""
    at = size - _END.size
    head = _read(file, 0, min(size, len(_LOCAL_SIGNATURE)))
    if at < 0 or head not in {_LOCAL_SIGNATURE, _END_SIGNATURE}:
        raise RefusedError("it is not a zip file")
    end = _END.unpack(_read(file, at, _END.size))
    signature, *narrow, comment = end
    if signature != _END_SIGNATURE or comment:
        raise RefusedError(f"{_DAMAGED}it does not end with the directory of a zip file")
    most = (_16, _16, _16, _16, _32, _32)
    wide = narrow
    if any(map(operator.eq, narrow, most)):
        wide, at = _end64(file, at)
        if any(n not in {w, limit} for n, w, limit in zip(narrow, wide, most, strict=True)):
            raise RefusedError(f"{_DAMAGED}the two ends of its directory differ")
    disk, first_disk, here, count, length, start = wide
    if disk or first_disk or here != count:
        raise RefusedError("it is a part of a zip file")
    if start + length != at:
        raise RefusedError(f"{_DAMAGED}its directory is not where it should be")
    return count, length, start


def _end64(file: BinaryIO, end: int) -> tuple[list[int], int]:
    """Return the fields of the end that has 64 bits for each, and its position."""
    at = end - _LOCATOR.size - _END64.size
    if at < 0:
        raise RefusedError(f"{_DAMAGED}it does not end with the directory of a zip file")
    data = _read(file, at, _END64.size + _LOCATOR.size)
    signature, its_disk, place, disks = _LOCATOR.unpack_from(data, _END64.size)
    record = _END64.unpack_from(data)
    if signature != _LOCATOR_SIGNATURE or record[0] != _END64_SIGNATURE:
        raise RefusedError(f"{_DAMAGED}it does not end with the directory of a zip file")
    _, length, _, _, *fields = record
    if place != at or its_disk or disks > 1 or length != _END64.size - 12:
        raise RefusedError(f"{_DAMAGED}its directory is not where it should be")
    return fields, at


def _entries(data: bytes, count: int) -> Iterator[_Entry]:
    """Yield the entries of the central directory."""
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise RefusedError(f"{_DAMAGED}its directory is too short")
        fields = _ENTRY.unpack_from(data, at)
        (signature, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size,
         comment_size, disk, _, attributes, header) = fields  # fmt: skip
        name_at = at + _ENTRY.size
        extra_at = name_at + name_size
        at = extra_at + extra_size + comment_size
        if signature != _ENTRY_SIGNATURE or at > len(data):
            raise RefusedError(f"{_DAMAGED}its directory is too short, or has other content")
        raw_name = data[name_at:extra_at]
        shown = raw_name[:NAME_CHARACTERS].decode("ascii", "replace")
        if flags & _ENCRYPTED:
            raise RefusedError(f"{shown!r} in it is encrypted")
        if method != _STORED:
            raise RefusedError(f"{shown!r} in it is compressed; in a bundle nothing is")
        if flags & ~_KNOWN_FLAGS or disk not in {0, _16}:
            raise RefusedError(f"{shown!r} in it has a form that dask-strata does not write")
        extra = data[extra_at : extra_at + extra_size]
        size, packed, header = _wide(extra, (size, packed, header))
        if size != packed:
            raise RefusedError(f"{_DAMAGED}{shown!r} in it has two sizes")
        yield _Entry(raw_name, flags, size, crc, header, attributes >> 16)
    if at != len(data):
        raise RefusedError(f"{_DAMAGED}its directory has other content")


def _wide(extra: bytes, values: Sequence[int]) -> list[int]:
    """Return sizes and positions; those that need 64 bits are in a field of their own."""
    if _32 not in values:
        return list(values)
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == _ZIP64 and at + length <= len(extra):
            wanted = sum(value == _32 for value in values)
            if length < 8 * wanted:
                break
            wide = iter(struct.unpack_from(f"<{wanted}Q", extra, at))
            return [next(wide) if value == _32 else value for value in values]
        at += length
    raise RefusedError(f"{_DAMAGED}its directory lacks the size of a member")


def _name(entry: _Entry) -> str:
    try:
        return entry.raw_name.decode("utf-8" if entry.flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise RefusedError(f"the name {entry.raw_name[:80]!r} in it is not a text") from None


def _check_name(name: str, parts: Sequence[str]) -> None:
    """Refuse names that lead elsewhere, here or on another system, and hidden ones."""
    plain = all(is_name(part) and not part.startswith(".") for part in parts)
    if not plain or "\\" in name or ":" in name or len(parts) > _DEPTH:
        raise RefusedError(f"{name[:NAME_CHARACTERS]!r} in it is not the name of a file in a run")


def _check_mode(name: str, entry: _Entry, *, is_folder: bool) -> None:
    kind = stat.S_IFMT(entry.mode)
    if kind not in {0, stat.S_IFDIR if is_folder else stat.S_IFREG}:
        what = "a symbolic link" if kind == stat.S_IFLNK else "not a plain file or folder"
        raise RefusedError(f"{name} in it is {what}")
    if is_folder and entry.size:
        raise RefusedError(f"{_DAMAGED}the folder {name} in it has content")


def _first_byte(file: BinaryIO, name: str, entry: _Entry, stop: int) -> int:
    """Return the position of a member's first byte; its local header has to agree.

    Parameters
    ----------
    file : file
        The bundle.
    name : str
        Name of the member.
    entry : _Entry
        Its entry of the central directory.
    stop : int
        Position at which the next member, or the directory, begins.
    """
    if entry.header + _LOCAL.size + len(entry.raw_name) > stop:
        raise RefusedError(f"{_DAMAGED}{name} and another member share bytes")
    data = _read(file, entry.header, _LOCAL.size + len(entry.raw_name))
    fields = _LOCAL.unpack_from(data)
    signature, _, flags, method, _, _, crc, packed, size, name_size, extra_size = fields
    if signature != _LOCAL_SIGNATURE or data[_LOCAL.size :] != entry.raw_name:
        raise RefusedError(f"{_DAMAGED}{name} is not where the directory has it")
    if name_size != len(entry.raw_name) or (flags, method) != (entry.flags, _STORED):
        raise RefusedError(f"{_DAMAGED}the two heads of {name} differ")
    known_later = bool(flags & _DESCRIPTOR)
    allowed = {entry.size, _32, 0} if known_later else {entry.size, _32}
    if size not in allowed or packed not in allowed or (crc != entry.crc and not known_later):
        raise RefusedError(f"{_DAMAGED}the two heads of {name} differ")
    first = entry.header + _LOCAL.size + name_size + extra_size
    if first + entry.size > stop:
        raise RefusedError(f"{_DAMAGED}{name} and another member share bytes")
    return int(first)
