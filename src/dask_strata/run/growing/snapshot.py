"""Snapshots: a large run that is not finalised is finalised in the cache folder, as far as it is.

A snapshot is a run folder of its own, in the cache folder of the user. The run is not changed. A
snapshot is used for the same segments only: they must begin with the bytes that it has the rows of.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa

from dask_strata.config import read_settings
from dask_strata.errors import InterruptedQueryError, StrataError
from dask_strata.run.derived import STORED, versions
from dask_strata.run.finalise import derive_all
from dask_strata.store.compact import write_snapshot
from dask_strata.store.copies.mirror import cache_folder, digest, remove_old_copies
from dask_strata.store.finalise.progress import showing
from dask_strata.store.index import Index, read_index
from dask_strata.store.manifest import ADDITIONS, PARQUET, SEGMENTS, SUFFIX, Manifest
from dask_strata.store.reader import fingerprint
from dask_strata.store.safe_files import entries, is_folder, open_inside, read_inside
from dask_strata.store.segments.frames import extents

#: Bytes in segments from which a run has a snapshot: smaller ones are read in less than a second.
SMALLEST_BYTES = 4 << 20

#: A snapshot is replaced when the segments have grown by this share of the bytes that it has.
GROWTH = 0.25

#: Folders of snapshots that nobody wrote to for this long, in seconds, are never finished.
_UNFINISHED_SECONDS = 3600

#: File with the state of a run of which a snapshot could not be made.
_FAILED = "failed"

_FACTS = "snapshot.json"
_FACTS_BYTES = 16 << 20
_BLOCK = 1 << 20


def snapshot_of(run: Path) -> Path | None:
    """Return the folder of a snapshot of a run; make one if the run is large and has no recent one.

    Parameters
    ----------
    run : Path
        The run's folder.

    Returns
    -------
    Path or None
        None if the run is small, finalised or damaged, or if the cache folder cannot be written.
    """
    try:
        manifest = Manifest.read(run)
        size = segment_bytes(run)
        if size < SMALLEST_BYTES or manifest.imported_from is not None:
            return None
        home = cache_folder() / f"snapshots-{digest(manifest.run_id, str(run.absolute()))}"
        found = _usable(run, home, manifest.run_id)
        if found is not None and found[1] <= max(SMALLEST_BYTES, GROWTH * size):
            with suppress(OSError):
                os.utime(_lock(found[0]))
            return found[0]
        return _made_once(run, home)
    except InterruptedQueryError:
        raise
    except (OSError, ValueError, MemoryError, StrataError, duckdb.Error, pa.ArrowException):
        return None  # the run is read in memory, and damage is reported by what reads it


def _made_once(run: Path, home: Path) -> Path | None:
    """Make a snapshot, unless that failed before for the same files."""
    failed = home / _FAILED
    state = digest(repr((fingerprint(run), sorted(versions().items()))))
    if failed.is_file() and failed.read_text(encoding="utf-8") == state:
        return None
    made = _made(run, home)
    if made is None:
        failed.write_text(state, encoding="utf-8")
    return made


def segment_bytes(run: Path) -> int:
    """Return the bytes in segments that the run's own Parquet does not have."""
    size = 0
    with suppress(OSError), os.scandir(run / SEGMENTS) as found:
        size = sum(entry.stat(follow_symlinks=False).st_size for entry in found)
    known = 0
    with suppress(OSError, ValueError):
        index = read_index(run, PARQUET)
        known = sum(s.size for s in index.segments if s.path.is_file())
    return size - known


def _usable(run: Path, home: Path, run_id: str) -> tuple[Path, int] | None:
    """Return the snapshot that has most, and the bytes in segments that it lacks."""
    best: tuple[Path, int] | None = None
    parts = _parts(run)
    for name in _names(home):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            index = read_index(home / name, PARQUET)
            facts = json.loads(read_inside(home, name, _FACTS, limit=_FACTS_BYTES))
            lacking = _lacking(run, index)
            current = {n: d.version for n, d in index.derived.items()}
            if index.foreign(run_id) or current != {n: versions()[n] for n in STORED}:
                continue
            if facts["parts"] != parts or (best and best[1] <= lacking):
                continue
            if facts["checksums"] == _checksums(run, index):
                best = home / name, lacking
    return best


def _lacking(run: Path, index: Index) -> int:
    """Return the bytes in segments that an index does not have the rows of."""
    known = {f"{s.process}{SUFFIX}": s.size for s in index.segments}
    with os.scandir(run / SEGMENTS) as found:
        return sum(max(e.stat().st_size - known.get(e.name, 0), 0) for e in found)


def _parts(run: Path) -> str:
    """Return a text that changes with any file of the run's own Parquet and additions."""
    found = []
    for top in (PARQUET, f"{PARQUET}.old", ADDITIONS):
        for path in sorted((run / top).rglob("*")) if is_folder(run / top) else ():
            stat = path.lstat()
            found.append((str(path.relative_to(run)), stat.st_size, stat.st_mtime_ns))
    return digest(repr(found))


def _names(home: Path) -> list[str]:
    with suppress(OSError):
        found = [e.name for e in os.scandir(home) if not e.name.startswith(".")]
        return [name for name in found if is_folder(home / name / PARQUET)]
    return []


def _made(run: Path, home: Path) -> Path | None:
    """Make a snapshot, and remove those before the last one."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_unfinished(home)
    new = home / f".{secrets.token_hex(4)}"
    try:
        new.mkdir(mode=0o700)
        parts = _parts(run)
        manifest = Manifest.read(run)
        manifest.write(new)
        with showing("first reading") as step:
            if not write_snapshot(run, new, partial(derive_all, progress=step), step):
                return None
        index = read_index(new, PARQUET)
        if index.derived.keys() != STORED:
            return None
        facts = {"parts": parts, "checksums": _checksums(run, index)}
        (new / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        target = home / f"snapshot-{secrets.token_hex(4)}"
        older = sorted((_used(home / name), name) for name in _names(home))
        new.rename(target)
        _lock(target).touch()
        for _, name in older[:-1]:
            shutil.rmtree(home / name, ignore_errors=True)
            _lock(home / name).unlink(missing_ok=True)
        remove_old_copies(cache_folder(), read_settings().cache_size)
        return target
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _lock(snapshot: Path) -> Path:
    """Return the file whose time is that of the last use, see `mirror.remove_old_copies`."""
    return snapshot.with_name(f".{snapshot.name}.lock")


def _used(snapshot: Path) -> float:
    with suppress(OSError):
        return _lock(snapshot).stat().st_mtime
    return 0.0


def _remove_unfinished(home: Path) -> None:
    """Remove what processes left that were killed while they made a snapshot."""
    for entry in list(os.scandir(home)):
        if is_folder(home / entry.name) and entry.name.startswith("."):
            with suppress(OSError):
                age = time.time() - max(each.stat().st_mtime for each in os.scandir(entry))
                if age > _UNFINISHED_SECONDS:
                    shutil.rmtree(home / entry.name, ignore_errors=True)


def _checksums(run: Path, index: Index) -> Mapping[str, int]:
    """Return the checksums of the bytes of segments that an index has the rows of."""
    present = {name for name, _ in entries(run, SEGMENTS)}
    found = {}
    for segment in index.segments:
        name = f"{segment.process}{SUFFIX}"
        if name in present:
            with open_inside(run, SEGMENTS, name) as file:
                found[segment.process] = _checksum(file, segment.size)
    return found


def _checksum(file: BinaryIO, size: int) -> int:
    """Return the checksum of a file's first bytes without its holes; -1 if it is shorter."""
    if os.fstat(file.fileno()).st_size < size:
        return -1
    crc = 0
    for start, end in extents(file, size):
        file.seek(start)
        while file.tell() < end and (block := file.read(min(end - file.tell(), _BLOCK))):
            crc = zlib.crc32(block, crc)
    return crc
