"""Compaction: converting segments to Parquet, repeatedly, also after an interruption.

The Parquet of each table is read back and compared with the segments before any of them is
deleted. The segment of a process that may still write is never deleted.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.store.index import index_bytes
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import ADDITIONS, INDEX, PARQUET, SEGMENTS, SUFFIX
from dask_strata.store.parquet import (
    READ_ERRORS,
    Part,
    add_to_budget,
    main_home,
    open_part,
    read_table,
    unreadable,
)
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
from dask_strata.store.segments import may_grow

#: Rows of a Parquet row group.
ROWS_PER_GROUP = 1 << 17


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
        Additions that were left unchanged: they cannot be read in full, or the run is imported.
    """

    rows: int
    segment_bytes: int
    parquet_bytes: int
    segments_kept: int
    additions: int = 0
    additions_kept: int = 0


def compact(folder: Path, progress: Callable[[str], None] = lambda _: None) -> Compaction:
    """Write the recorded tables of a run as Parquet, and delete the segments that it contains.

    Parameters
    ----------
    folder : Path
        The run's folder.
    progress : callable, optional
        Called with the name of each table before it is written.

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
    record = read_record(folder, damaged=False)
    before = sum(s.size for s in record.segments if is_file(s.path))
    if record.imported:
        rows = sum(record.rows.values())
        return Compaction(rows, 0, _size(folder), 0, additions_kept=len(record.damaged))
    if record.refused:
        raise StrataError(
            f"{folder} cannot be compacted: {record.refused[0]}.",
            hint="Nothing was changed, and the run can be read as it is. Remove links, pipes and "
            f"other entries that are not the run's own; list them: dask-strata check {folder}",
        )
    added = [name for name in record.additions if is_folder(folder / ADDITIONS / name)]
    if {PARQUET, f"{PARQUET}.old"} & set(record.damaged):
        raise _incomplete(folder)
    new = folder / f".{PARQUET}-{secrets.token_hex(4)}"
    try:
        _write(record, new, progress)
        share_as(folder, *new.rglob("*"), new)
        _swap(folder, new)
    except OSError as error:
        raise StrataError(
            f"{folder} could not be compacted: {error.strerror or error}.",
            hint="The segments are unchanged. Make room or check permissions, then try again.",
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    kept = _delete_segments(record)
    for name in added:
        shutil.rmtree(folder / ADDITIONS / name, ignore_errors=True)
    rows = sum(record.rows.values())
    return Compaction(rows, before, _size(folder), kept, len(added), len(record.damaged))


def _size(folder: Path) -> int:
    return sum(f.lstat().st_size for f in (folder / PARQUET).rglob("*") if is_file(f))


def _write(record: Record, new: Path, progress: Callable[[str], None]) -> None:
    """Write the tables of a record and its index, and verify both by reading them back."""
    rows = {name: n for name, n in record.rows.items() if n}
    checksums: dict[str, int] = {}
    new.mkdir(mode=0o700)
    for name, n in rows.items():
        progress(name)
        path = new / name / "part-0.parquet"
        path.parent.mkdir()
        table = record.tables[name]
        if len(table) != n:
            raise _incomplete(record.folder)
        write_parquet(table, path)
        _compare(Part(record.folder, (new.name,), {name: n}), name, table)
        with path.open("rb") as file:
            checksums[name] = checksum(file)
    (new / INDEX).write_bytes(
        index_bytes(record.manifest.run_id, rows, record.segments, record.additions, checksums)
    )
    written = open_part(record.folder, record.manifest.run_id, "Parquet", new.name)
    if written.damages or (dict(written.rows), dict(written.checksums)) != (rows, checksums):
        raise _mismatch("The index")


def _compare(written: Part, name: str, table: pa.Table) -> None:
    budget = Budget()
    add_to_budget(written, budget)
    try:
        back, replaced = read_table(written, name, budget)
    except READ_ERRORS as error:
        raise StrataError(
            f"The Parquet of {name} cannot be read back: {unreadable(error)}.",
            hint="Nothing was deleted; the segments are unchanged.",
        ) from error
    pairs = zip(_groups(back), _groups(table), strict=False)
    if replaced or len(back) != len(table) or not all(b.equals(t) for b, t in pairs):
        raise _mismatch(f"The Parquet of {name}")


def _incomplete(folder: Path) -> StrataError:
    return StrataError(
        f"The Parquet of {folder} cannot be read in full: compaction would lose its other rows.",
        hint=f"Nothing was changed. List the damage: dask-strata check {folder}",
    )


def _mismatch(file: str) -> StrataError:
    return StrataError(
        f"{file} is not equal to the recorded rows; nothing was deleted.",
        hint="Please report this with the versions of dask-strata and pyarrow.",
    )


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as a small Parquet file that other tools can read.

    Parameters
    ----------
    table : pyarrow.Table
        The rows.
    path : Path
        The file.
    """
    with pq.ParquetWriter(path, table.schema, **parquet_options(table.schema)) as writer:
        for group in _groups(table):
            writer.write_table(group)


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table in row groups, each with a dictionary of its own texts only.

    Otherwise each row group would contain the dictionary of the whole table.
    """
    for start in range(0, len(table), ROWS_PER_GROUP):
        group = table.slice(start, ROWS_PER_GROUP)
        for i, field in enumerate(group.schema):
            if pa.types.is_dictionary(field.type):
                texts = group[i].cast(field.type.value_type).combine_chunks()
                group = group.set_column(i, field, texts.dictionary_encode().cast(field.type))
        yield group


def parquet_options(schema: pa.Schema, level: int = 9) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetWriter` for a table.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of the table.
    level : int, optional
        Compression level of Zstandard.
    """
    plain = {f.name: f.type for f in schema if not pa.types.is_nested(f.type)}
    numbers = [n for n, t in plain.items() if pa.types.is_timestamp(t) or pa.types.is_integer(t)]
    return {
        "compression": "zstd",
        "compression_level": level,
        "version": "2.6",
        "use_dictionary": [n for n in plain if n not in numbers],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None,
        "store_schema": True,
        "write_statistics": True,
    }


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
