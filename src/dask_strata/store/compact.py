"""Turning segments into Parquet: once, again, or after being interrupted.

The Parquet of each table is read back and compared before any segment is deleted, and the
segment of a process that may still write is never deleted.
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
from dask_strata.store.index import INDEX, index_bytes
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import ADDITIONS, PARQUET, SEGMENTS, SUFFIX
from dask_strata.store.parquet import (
    READ_ERRORS,
    Part,
    allow,
    main_home,
    part,
    read_table,
    unreadable,
)
from dask_strata.store.reader import Record, read_record
from dask_strata.store.safe_files import checksum, entries, is_file, is_folder, opened_folder
from dask_strata.store.segments import may_grow

#: Rows of a group of Parquet.
ROWS_A_GROUP = 1 << 17


@dataclass(frozen=True)
class Compaction:
    """What was done: rows in Parquet, bytes before and after, and additions that are in it now.

    Of the additions those are kept as they are that cannot be read whole.
    """

    rows: int
    segment_bytes: int
    parquet_bytes: int
    segments_kept: int
    additions: int = 0
    additions_kept: int = 0


def compact(folder: Path, progress: Callable[[str], None] = lambda _: None) -> Compaction:
    """Write the run's recorded tables as Parquet, and delete the segments that are in it.

    Parameters
    ----------
    folder : Path
        The run's folder.
    progress : callable, optional
        Called with the name of each table before it is written.

    Raises
    ------
    NotARunError, NewerRunError
        It is no run, or one of a later version.
    StrataError
        The Parquet could not be written or is not what was to be written, or that which is
        there cannot be read; nothing has been deleted then.
    """
    record = read_record(folder, damaged=False)
    before = sum(s.size for s in record.segments if is_file(s.path))
    if record.imported:
        rows, apart = sum(record.rows.values()), len(record.damaged)
        return Compaction(rows, 0, _size(folder), 0, additions_kept=apart)
    if record.refused:
        raise StrataError(
            f"{folder} cannot be compacted: {record.refused[0]}.",
            hint="Nothing was changed, and the run can be read as it is. What is no file or "
            f"folder of the run's own can be removed; all of it: dask-strata check {folder}",
        )
    there = [name for name in record.additions if is_folder(folder / ADDITIONS / name)]
    if {PARQUET, f"{PARQUET}.old"} & set(record.damaged):
        raise _not_whole(folder)
    new = folder / f".{PARQUET}-{secrets.token_hex(4)}"
    try:
        _write(record, new, progress)
        _swap(folder, new)
    except OSError as error:
        raise StrataError(
            f"{folder} could not be compacted: {error.strerror or error}.",
            hint="The segments are untouched; make room or check permissions, and try again.",
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    kept = _delete_segments(record)
    for name in there:
        shutil.rmtree(folder / ADDITIONS / name, ignore_errors=True)
    rows = sum(record.rows.values())
    return Compaction(rows, before, _size(folder), kept, len(there), len(record.damaged))


def _size(folder: Path) -> int:
    return sum(f.lstat().st_size for f in (folder / PARQUET).rglob("*") if is_file(f))


def _write(record: Record, new: Path, progress: Callable[[str], None]) -> None:
    """Write what is on record, and see that it is read again as it is."""
    rows = {name: n for name, n in record.rows.items() if n}
    checksums: dict[str, int] = {}
    new.mkdir(parents=True)
    for name, n in rows.items():
        progress(name)
        path = new / name / "part-0.parquet"
        path.parent.mkdir()
        table = record.tables[name]
        if len(table) != n:
            raise _not_whole(record.folder)
        write_parquet(table, path)
        _compare(Part(record.folder, (new.name,), {name: n}), name, table)
        with path.open("rb") as file:
            checksums[name] = checksum(file)
    (new / INDEX).write_bytes(index_bytes(rows, record.segments, record.additions, checksums))
    written = part(record.folder, "Parquet", new.name)
    if written.damages or (dict(written.rows), dict(written.checksums)) != (rows, checksums):
        raise _different("the index")


def _compare(written: Part, name: str, table: pa.Table) -> None:
    budget = Budget()
    allow(written, budget)
    try:
        back, odd = read_table(written, name, budget)
    except READ_ERRORS as error:
        raise StrataError(
            f"The Parquet of {name} would not be read again: {unreadable(error)}.",
            hint="Nothing was deleted: the segments stay as they are.",
        ) from error
    pairs = zip(_groups(back), _groups(table), strict=False)
    if odd or len(back) != len(table) or not all(b.equals(t) for b, t in pairs):
        raise _different(f"the Parquet of {name}")


def _not_whole(folder: Path) -> StrataError:
    return StrataError(
        f"The Parquet of {folder} cannot be read whole: it would be replaced by what can be.",
        hint=f"Nothing was changed; what is missing: dask-strata check {folder}",
    )


def _different(what: str) -> StrataError:
    return StrataError(
        f"{what[0].upper()}{what[1:]} is not equal to what was recorded; nothing was deleted.",
        hint="Please report this with the versions of dask-strata and pyarrow.",
    )


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table so that other tools read it and it takes little room."""
    with pq.ParquetWriter(path, table.schema, **parquet_options(table.schema)) as writer:
        for group in _groups(table):
            writer.write_table(group)


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table in row groups, each with the texts that are in it.

    With those of the whole table a group of Parquet would be as large as the table.
    """
    for start in range(0, len(table), ROWS_A_GROUP):
        group = table.slice(start, ROWS_A_GROUP)
        for i, field in enumerate(group.schema):
            if pa.types.is_dictionary(field.type):
                texts = group[i].cast(field.type.value_type).combine_chunks()
                group = group.set_column(i, field, texts.dictionary_encode().cast(field.type))
        yield group


def parquet_options(schema: pa.Schema, level: int = 9) -> dict[str, Any]:
    """Return how a table of that schema is written."""
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
    """Put the new Parquet in place; at every moment one complete Parquet can be found."""
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
    """Delete the segments that are in Parquet, by their names in the run's own folder."""
    known = {f"{segment.process}{SUFFIX}": segment for segment in record.segments}
    kept = 0
    for name, kind in entries(record.folder, SEGMENTS):
        segment = known.get(name)
        if segment is None or kind != "a file":
            continue
        with opened_folder(record.folder, SEGMENTS) as folder:
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            if may_grow(segment) or size != segment.size:
                kept += 1
            else:
                os.unlink(name, dir_fd=folder)
    return kept
