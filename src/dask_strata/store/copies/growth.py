"""Copying a run while it grows: which bytes a copy lacks, and adding them to it.

Segments only grow, so that a copy appends to them, whole frames at a time: a writer truncates a
frame that it could write in part only. All other files are replaced whole. A copy is resumed from
its own files, see `positions`: nothing else needs to be remembered.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dask_strata.store.limits import COUNT, NAME_CHARACTERS, TIME_NS
from dask_strata.store.manifest import (
    ADDITIONS,
    ASIDE,
    DARSHAN,
    INDEX,
    MANIFEST,
    PARQUET,
    PROFILES,
    SEGMENTS,
    SUFFIX,
)
from dask_strata.store.safe_files import (
    FILE,
    FOLDER,
    RefusedError,
    create_folders_inside,
    entries,
    is_name,
    open_inside,
    opened_folder,
    writable_inside,
)
from dask_strata.store.segments.frames import whole_frames

#: Folders of a run that are copied, and the deepest path in one of them.
FOLDERS = (SEGMENTS, PROFILES, DARSHAN, ASIDE, ADDITIONS, PARQUET)
_DEPTH = 5


class Position(NamedTuple):
    """How much of a file a copy has.

    Attributes
    ----------
    offset : int
        Number of bytes.
    version : int
        Of a file that is replaced whole, when it was modified, in nanoseconds since the epoch;
        0 for a segment.
    """

    offset: int
    version: int = 0


class Part(NamedTuple):
    """A part of one file of a run.

    Attributes
    ----------
    name : str
        Path of the file in the run's folder, with ``/`` between its parts.
    offset : int
        Position of the part in the file, in bytes.
    data : bytes
        The bytes.
    size : int
        Of a file that is replaced whole, its size in bytes; 0 for a segment.
    version : int
        As in `Position`.
    """

    name: str
    offset: int
    data: bytes
    size: int = 0
    version: int = 0

    @property
    def after(self) -> Position:
        """Position of a copy that has this part."""
        return Position(self.offset + len(self.data), self.version)


def is_segment(name: str) -> bool:
    """Return whether a name in a run's folder is that of a segment, which only grows.

    >>> is_segment("segments/worker-0a1b2c3d.seg"), is_segment("run.json")
    (True, False)
    """
    folder, _, file = name.partition("/")
    return folder == SEGMENTS and file.endswith(SUFFIX) and "/" not in file


def read_growth(
    folder: Path,
    seen: Mapping[str, Position],
    limit_bytes: int,
    *,
    ended: bool = False,
    unreadable: Callable[[str], None] = lambda _: None,
) -> list[Part]:
    """Return the next parts of a run that a copy lacks; none if it has everything.

    Links, pipes and hidden files are skipped, as are files that cannot be read.

    Parameters
    ----------
    folder : Path
        The run's folder.
    seen : mapping of str to Position
        How much of each file the copy has.
    limit_bytes : int
        Bytes after which no further part is added. One frame may exceed it.
    ended : bool, optional
        Whether no process writes to the run any more: then an incomplete last frame is included.
    unreadable : callable, optional
        Called with the name of each file that exists and cannot be read.

    Returns
    -------
    list of Part
        In the order in which a copy has to add them.
    """
    parts: list[Part] = []
    left = limit_bytes
    for name in run_files(folder, unreadable):
        try:
            for part in _of_file(folder, name, seen.get(name), left, ended=ended):
                parts.append(part)
                left -= len(part.data)
        except FileNotFoundError:
            pass  # it was removed meanwhile
        except OSError:
            unreadable(name)
        if left <= 0:
            break
    return parts


def run_files(folder: Path, unreadable: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Yield the names of a run's files; indexes after the tables that they describe.

    Parameters
    ----------
    folder : Path
        The run's folder.
    unreadable : callable, optional
        Called with the name of each folder that exists and cannot be listed.
    """
    yield MANIFEST
    indexes = []
    for top in FOLDERS:
        for name in _below(folder, unreadable, top):
            if name.endswith(f"/{INDEX}"):
                indexes.append(name)
            else:
                yield name
    yield from indexes


def _below(folder: Path, unreadable: Callable[[str], None], *names: str) -> Iterator[str]:
    try:
        for name, kind in entries(folder, *names):
            if not _may_copy(name):
                continue
            if kind == FILE:
                yield "/".join((*names, name))
            elif kind == FOLDER and len(names) < _DEPTH:
                yield from _below(folder, unreadable, *names, name)
    except (FileNotFoundError, RefusedError):
        pass  # it was removed meanwhile, or is a link
    except OSError:
        unreadable("/".join(names))


def _may_copy(name: str) -> bool:
    return is_name(name) and not name.startswith(".")


def _of_file(
    folder: Path, name: str, seen: Position | None, left: int, *, ended: bool
) -> Iterator[Part]:
    with open_inside(folder, *name.split("/")) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if is_segment(name):
            offset = 0 if seen is None else seen.offset
            stop = _segment_end(file, offset, size, left, ended=ended)
            if stop > offset or (seen is None and size == 0):
                yield Part(name, offset, _read(file, offset, stop))
            return
        version = status.st_mtime_ns
        same = seen is not None and seen.version == version and seen.offset <= size
        offset = seen.offset if same and seen is not None else 0
        if not same or offset < size:
            data = _read(file, offset, min(size, offset + left))
            yield Part(name, offset, data, size, version)


def _segment_end(file: BinaryIO, offset: int, size: int, left: int, *, ended: bool) -> int:
    stop = whole_frames(file, offset, size, left)
    return min(size, offset + left) if ended and stop == offset else stop


def _read(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(max(stop - start, 0))


def positions(folder: Path) -> dict[str, Position]:
    """Return how much of each file a copy has, from its files.

    Parameters
    ----------
    folder : Path
        Folder of the copy; it may not exist.
    """
    found = {}
    for name in run_files(folder):
        with suppress(OSError), open_inside(folder, *name.split("/")) as file:
            status = os.fstat(file.fileno())
            if is_segment(name):
                # An interrupted copy may end within a frame: that frame is added again.
                stop = whole_frames(file, 0, status.st_size, status.st_size)
                found[name] = Position(stop)
            else:
                found[name] = Position(status.st_size, status.st_mtime_ns)
    return found


def write_part(folder: Path, part: Part) -> None:
    """Add a part to a copy. A part that the copy already has changes nothing.

    A file that is replaced whole appears when its last part is added.

    Parameters
    ----------
    folder : Path
        Folder of the copy. New files and folders in it get its permissions.
    part : Part
        The part; it may come from anywhere.

    Raises
    ------
    RefusedError
        The name leads out of the folder or to a link, a number is out of range, or earlier parts
        are missing: continue from `positions`.
    OSError
        The copy cannot be written.
    """
    names = _checked(part)
    if is_segment(part.name):
        with writable_inside(folder, *names) as file:
            _put(file, part)
        return
    held = f".{zlib.crc32(part.name.encode()):08x}.part"
    if _has(folder, names, part):
        return
    with writable_inside(folder, held) as file:
        _put(file, part)
        if part.offset + len(part.data) < part.size:
            return
        os.utime(file.fileno(), ns=(part.version, part.version))
    create_folders_inside(folder, *names[:-1])
    with opened_folder(folder) as source, opened_folder(folder, *names[:-1]) as target:
        os.replace(held, names[-1], src_dir_fd=source, dst_dir_fd=target)


def _checked(part: Part) -> list[str]:
    """Return the parts of the name; raise RefusedError if the part cannot be of a run."""
    name, offset, data, size, version = part
    texts = isinstance(name, str) and isinstance(data, bytes)
    numbers = all(type(n) is int and n >= 0 for n in (offset, size, version))
    if not texts or not numbers or max(offset, size) > COUNT or version > TIME_NS:
        raise RefusedError("a part of a file has a wrong type, or is out of range")
    names = name.split("/")
    if len(names) > _DEPTH + 1 or not all(map(_may_copy, names)):
        raise RefusedError(f"{name[:NAME_CHARACTERS]!r} is not the name of a file in a run")
    if name != MANIFEST and (len(names) == 1 or names[0] not in FOLDERS):
        raise RefusedError(f"{name[:NAME_CHARACTERS]!r} is not the name of a file in a run")
    if not is_segment(name) and offset + len(data) > size:
        raise RefusedError(f"a part of {name} is beyond its end")
    return names


def _has(folder: Path, names: list[str], part: Part) -> bool:
    """Return whether a copy has this version of a file already."""
    with suppress(FileNotFoundError), open_inside(folder, *names) as file:
        status = os.fstat(file.fileno())
        return (status.st_size, status.st_mtime_ns) == (part.size, part.version)
    return False


def _put(file: BinaryIO, part: Part) -> None:
    """Write a part at its offset; truncate the file there if it continues differently."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise RefusedError(f"{part.name} is not a file")
    size = file.seek(0, os.SEEK_END)
    if size < part.offset:
        raise RefusedError(f"{part.name} lacks {part.offset - size:,} bytes before this part")
    file.seek(part.offset)
    present = file.read(len(part.data))
    replaced = not is_segment(part.name) and part.offset == 0
    if present == part.data and not replaced:
        return
    if present != part.data[: len(present)] or replaced:
        file.truncate(part.offset)
        present = b""
    file.seek(part.offset + len(present))
    file.write(part.data[len(present) :])
    file.flush()
