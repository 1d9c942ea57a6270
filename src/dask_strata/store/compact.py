"""Compaction: converting segments to Parquet, repeatedly, also after an interruption.

The Parquet of each table is read back and compared with the segments before any of them is
deleted. The segment of a process that may still write is never deleted. An imported run has
Parquet with texts of keys in place of segments.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.schema import FORMAT_VERSION
from dask_strata.store.finalise.keys import KeyCollector, SameHashError
from dask_strata.store.finalise.spool import KEYS_PER_BUCKET, Batches, Spool
from dask_strata.store.finalise.tables import mismatch, part_name, write_part
from dask_strata.store.finalise.time_order import ORDERED, in_time_order, places
from dask_strata.store.index import Derived, Index, index_bytes
from dask_strata.store.key_texts import KEYS
from dask_strata.store.manifest import ADDITIONS, INDEX, PARQUET, SEGMENTS, SUFFIX
from dask_strata.store.parquet import Part, main_home, open_part
from dask_strata.store.parquet_writer import ROWS_PER_GROUP
from dask_strata.store.reader import Record, read_record
from dask_strata.store.safe_files import (
    FILE,
    checksum,
    entries,
    is_file,
    is_folder,
    opened_folder,
    share_as,
)
from dask_strata.store.segments.read import may_grow

#: Folder of temporary files, in the new Parquet folder.
_WORK = ".work"


@dataclass(frozen=True)
class Compaction:
    """Result of a compaction.

    Attributes
    ----------
    rows : int
        Rows of the run.
    segment_bytes : int
        Size of all segments before.
    parquet_bytes : int
        Size of the Parquet after.
    segments_kept : int
        Segments that were not deleted, as their process may still write.
    additions : int
        Additions that were merged into the Parquet.
    additions_kept : int
        Additions that were left unchanged, as they cannot be read in full.
    problem : str or None
        Why derived tables were not written, so that each question computes those that it needs.
    imported_bytes : int
        Size of the Parquet before, if an import wrote it and it had no ids of keys.
    """

    rows: int
    segment_bytes: int
    parquet_bytes: int
    segments_kept: int
    additions: int = 0
    additions_kept: int = 0
    problem: str | None = None
    imported_bytes: int = 0


@dataclass(frozen=True)
class DerivedFiles:
    """A derived table that was written, and the checksums of its files."""

    derived: Derived
    checksums: tuple[int, ...]


#: Writes derived tables into a new Parquet folder, which has the recorded ones.
Derive = Callable[[Part], Mapping[str, DerivedFiles]]


def compact(
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
    derive: Derive | None = None,
    keys_per_bucket: int = KEYS_PER_BUCKET,
) -> Compaction:
    """Write the recorded tables of a run as Parquet, and delete the segments that it contains.

    Parameters
    ----------
    folder : Path
        The run's folder.
    progress : callable, optional
        Called with the name of each table before it is written.
    derive : callable, optional
        Writes derived tables.
    keys_per_bucket : int, optional
        Number of keys whose rows are written to a file of their own.

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        A later version wrote the run, in a format that this version cannot read.
    StrataError
        The Parquet cannot be written or differs from the segments, or the run's present Parquet
        cannot be read in full. Nothing is deleted then.
    """
    for salt in count():
        received = Received(folder / f".{PARQUET}-{secrets.token_hex(4)}", salt)
        try:
            return _compacted(folder, received, progress, derive, keys_per_bucket)
        except SameHashError:
            continue
        except OSError as error:
            raise StrataError(
                f"{folder} could not be compacted: {error.strerror or error}.",
                hint="The segments are unchanged. Make room or check permissions, then try again.",
            ) from error
        finally:
            shutil.rmtree(received.new, ignore_errors=True)
    raise AssertionError("salts do not end")


def _compacted(
    folder: Path,
    received: Received,
    progress: Callable[[str], None],
    derive: Derive | None,
    keys_per_bucket: int,
) -> Compaction:
    new = received.new
    record = read_record(folder, damaged=False, receive=received.add)
    before = sum(s.size for s in record.segments if is_file(s.path))
    if record.refused:
        raise StrataError(
            f"{folder} cannot be compacted: {record.refused[0]}.",
            hint="Nothing was changed, and the run can be read as it is. Remove links, pipes and "
            f"other entries that are not the run's own; list them: dask-strata check {folder}",
        )
    added = [name for name in record.additions if is_folder(folder / ADDITIONS / name)]
    if {PARQUET, f"{PARQUET}.old"} & set(record.damaged):
        raise _incomplete(folder)
    imported = 0
    if record.imported:
        home = main_home(folder)
        if home is None:
            raise _incomplete(folder)
        record.tables.verify()
        imported = 0 if is_folder(folder / home / KEYS) else _size(folder, home)
    _write(record, received, progress, derive, keys_per_bucket)
    share_as(folder, *new.rglob("*"), new)
    if record.manifest.format < FORMAT_VERSION:
        # Earlier versions cannot read ids of keys: now they refuse the run.
        replace(record.manifest, format=FORMAT_VERSION).write(folder)
    _swap(folder, new)
    kept = _delete_segments(record)
    for name in added:
        shutil.rmtree(folder / ADDITIONS / name, ignore_errors=True)
    rows = sum(record.rows.values())
    return Compaction(
        rows,
        before,
        _size(folder),
        kept,
        len(added),
        len(record.damaged),
        imported_bytes=imported,
    )


def write_snapshot(
    folder: Path,
    target: Path,
    derive: Derive | None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    partial: bool = False,
) -> bool:
    """Write the tables of a run as Parquet into another folder; the run is not changed.

    Parameters
    ----------
    folder : Path
        The run's folder.
    target : Path
        The folder that gets the Parquet; it has the run's manifest.
    derive : callable or None
        Writes derived tables.
    progress : callable, optional
        Called with the name of each table before it is written.
    partial : bool, optional
        Whether any run is written, as far as it can be read.

    Returns
    -------
    bool
        False if a part of the run cannot be read, unless ``partial``, or two keys have one hash.
    """
    received = Received(target / PARQUET)
    record = read_record(folder, damaged=partial, receive=received.add)
    missing = record.imported or record.refused or record.damaged or not any(record.rows.values())
    if missing and not partial:
        return False
    try:
        _write(record, received, progress, derive, KEYS_PER_BUCKET)
    except SameHashError:
        return False
    return True


def _size(folder: Path, home: str = PARQUET) -> int:
    return sum(f.lstat().st_size for f in (folder / home).rglob("*") if is_file(f))


class Received:
    """The rows of segments that are on their way to the new Parquet folder, and their keys.

    Parameters
    ----------
    new : Path
        The folder.
    salt : int, optional
        Salt of the hashes of keys.
    """

    def __init__(self, new: Path, salt: int = 0) -> None:
        self.new, self._work, self._salt = new, new / _WORK, salt
        self._batches: Batches | None = None
        self._collector: KeyCollector | None = None

    @property
    def work(self) -> Path:
        """Folder of temporary files."""
        if not self._work.exists():
            self.new.mkdir(mode=0o700, exist_ok=True)
            self._work.mkdir()
        return self._work

    @property
    def batches_by_name(self) -> Batches:
        """Files of rows."""
        self._batches = self._batches or Batches(self.work)
        return self._batches

    @property
    def keys(self) -> KeyCollector:
        """The keys so far."""
        if self._collector is None:
            self._collector = KeyCollector(self.work, self._salt)
        return self._collector

    def add(self, name: str, rows: pa.Table) -> None:
        """Add rows of a table."""
        self.batches_by_name.append(name, self.keys.add(name, rows))

    def batches(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table with hashes of keys, and remove them."""
        if self._batches is not None:
            for batch in self._batches.batches(name):
                yield pa.Table.from_batches([batch])
            self._batches.remove(name)


def _write(
    record: Record,
    received: Received,
    progress: Callable[[str], None],
    derive: Derive | None,
    keys_per_bucket: int,
) -> None:
    """Write the tables of a record and its index; recorded rows are read back and compared."""
    new = received.new
    rows = {name: n for name, n in record.rows.items() if n}
    checksums = _write_recorded(record, rows, received, progress, keys_per_bucket)
    shutil.rmtree(received.work)

    def write_index(derived: dict[str, Derived]) -> None:
        segments, additions = record.segments, record.additions
        run_id = record.manifest.run_id
        index = Index(rows, segments, additions, checksums, run_id, derived, keys_per_bucket)
        (new / INDEX).write_bytes(index_bytes(index))

    write_index({})
    _verify_index(record, new, rows, checksums)
    if derive is not None:
        found = derive(open_part(new.parent, record.manifest.run_id, "Parquet", new.name))
        checksums.update({name: each.checksums for name, each in found.items()})
        write_index({name: each.derived for name, each in found.items()})
        _verify_index(record, new, rows, checksums)


def _write_recorded(
    record: Record,
    rows: Mapping[str, int],
    received: Received,
    progress: Callable[[str], None],
    keys_per_bucket: int,
) -> dict[str, tuple[int, ...]]:
    """Write the recorded tables and the table of keys; return the checksums."""
    new = received.new
    for name in rows:
        for part in record.tables.parts(name):
            for batch in _slices(part):
                received.keys.add(name, batch)
    (new / KEYS).mkdir()
    keys = new / KEYS / part_name(0)
    spool = Spool(received.work, received.keys.write(keys), keys_per_bucket)
    checksums: dict[str, tuple[int, ...]] = {}
    with keys.open("rb") as file:
        checksums[KEYS] = (checksum(file),)
    for name, n in rows.items():
        progress(name)
        for batch in _all_rows(record, received, name):
            spool.add(name, batch)
        if spool.rows.get(name) != n:
            raise _incomplete(record.folder)
        found = []
        for bucket in spool.buckets_of(name):
            found.append(write_part(spool, name, bucket, new))
            spool.remove(name, bucket)
        checksums[name] = tuple(found)
    return checksums


def _all_rows(record: Record, received: Received, name: str) -> Iterator[pa.Table]:
    """Yield the rows of a table in their order: of Parquet, large batches of segments, the rest.

    They have hashes of keys.
    """
    hashed = partial(received.keys.with_hashes, name)
    if record.imported and name == ORDERED:
        place = places(record.tables.columns(name, ["time", "seq"]))
        rows = (each for part in record.tables.parts(name) for each in _slices(part))
        yield from map(hashed, in_time_order(rows, place, received.batches_by_name))
        return
    for part in record.tables.in_parquet(name):
        yield from map(hashed, _slices(part))
    yield from received.batches(name)
    for part in record.tables.in_memory(name):
        yield from map(hashed, _slices(part))


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, len(table), ROWS_PER_GROUP):
        yield table.slice(start, ROWS_PER_GROUP)


def _verify_index(
    record: Record, new: Path, rows: dict[str, int], checksums: dict[str, tuple[int, ...]]
) -> None:
    written = open_part(new.parent, record.manifest.run_id, "Parquet", new.name)
    if written.damages or (dict(written.rows), dict(written.checksums)) != (rows, checksums):
        raise mismatch("The index")


def _incomplete(folder: Path) -> StrataError:
    return StrataError(
        f"The Parquet of {folder} cannot be read in full: compaction would lose its other rows.",
        hint=f"Nothing was changed. List the damage: dask-strata check {folder}",
    )


def _swap(folder: Path, new: Path) -> None:
    """Replace the Parquet folder; at every moment one complete Parquet folder exists."""
    current = main_home(folder)
    target = folder / PARQUET
    if current is not None and current != PARQUET:
        (folder / current).rename(target)
    if target.exists():
        old = folder / f"{PARQUET}.old"
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        new.rename(target)


def _delete_segments(record: Record) -> int:
    """Delete the segments that the Parquet contains; return the number of those kept."""
    known = {f"{segment.process}{SUFFIX}": segment for segment in record.segments}
    kept = 0
    for name, kind in entries(record.folder, SEGMENTS):
        segment = known.get(name)
        if segment is None or kind != FILE:
            continue
        with opened_folder(record.folder, SEGMENTS) as folder:
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            if may_grow(segment) or size != segment.size:
                kept += 1
            else:
                os.unlink(name, dir_fd=folder)
    return kept
