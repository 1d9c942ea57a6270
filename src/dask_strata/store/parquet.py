"""Reading the Parquet of a run: its main part, and the additions of later imports.

The metadata of a file is checked against the schema, and against the size of the file, before
any rows are read. A table whose Parquet cannot be read is empty, and a row of `losses` gives the
reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dask_strata.schema import RECORDED
from dask_strata.store.arrow import (
    arrow_schema,
    combine_chunks,
    combine_texts,
    nulls,
    within_bounds,
)
from dask_strata.store.index import Derived, read_index
from dask_strata.store.key_texts import KEYS, KEYS_SCHEMA, ROW, KeyTexts, has_buckets, stored_schema
from dask_strata.store.limits import CELL_BYTES, Budget, LimitExceededError
from dask_strata.store.manifest import ADDITIONS, INDEX, PARQUET
from dask_strata.store.safe_files import (
    FILE,
    FOLDER,
    GONE,
    checksum,
    disk_bytes,
    entries,
    is_file,
    is_folder,
    kind_of,
    open_inside,
)

#: Ending of the names of Parquet files.
ENDING = ".parquet"

#: Errors that reading an untrusted Parquet file may raise.
READ_ERRORS = (
    OSError,
    pa.ArrowException,
    LimitExceededError,
    ValueError,
    TypeError,
    LookupError,
    MemoryError,
)

#: Texts of a column are counted one by one only if they may take more than this, in bytes.
_UNCOUNTED_BYTES = 1 << 20

#: Files whose length exceeds their size on disk by more than this are not verified: most of them
#: is holes. The ratio allows for file systems that compress, the margin in bytes for those that
#: report the size on disk with a delay.
_LENGTH_RATIO = 4
_LENGTH_MARGIN = 64 << 20

#: From this number of rows, the columns of a table are read one by one.
_MANY_ROWS = 1 << 17


@dataclass(frozen=True)
class Part:
    """A Parquet folder inside of a run, with a folder for each table.

    Attributes
    ----------
    run : Path
        The run's folder.
    home : tuple of str
        Names of the folders from there to the Parquet folder.
    rows : mapping of str to int or None
        Number of rows of each table; None where unknown.
    damages : tuple
        Tables that cannot be read: name, number of lost rows or None, and reason.
    checksums : mapping of str to tuple of int
        CRC-32 of each file of each table; empty if an earlier version wrote the index.
    verified : mapping of str to tuple
        `identity` of each file of each table when its checksum was verified.
    derived : mapping of str to Derived
        The derived tables.
    keys_per_bucket : int
        Number of keys whose rows are in one file of a table that has several.
    keys : KeyTexts, optional
        Texts and types of the keys that the tables have ids of; None if the tables have texts.
    """

    run: Path
    home: tuple[str, ...]
    rows: Mapping[str, int | None]
    damages: tuple[tuple[str, int | None, str], ...] = ()
    checksums: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    verified: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    derived: Mapping[str, Derived] = field(default_factory=dict)
    keys_per_bucket: int = 0
    keys: KeyTexts | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Name of the innermost folder: it distinguishes additions."""
        return self.home[-1]

    def losses(self) -> list[dict[str, Any]]:
        """Return a row of `losses` for each table that cannot be read."""
        return [
            {"what": what, "count": count, "reason": reason, "where": "/".join(self.home)}
            for what, count, reason in self.damages
        ]


@dataclass(frozen=True)
class PartContents:
    """Tables of a part that could be read, and rows of `losses` for the others."""

    name: str
    tables: Mapping[str, pa.Table]
    losses: list[dict[str, Any]]


def main_home(run: Path) -> str | None:
    """Return the name of the run's Parquet folder, also if a compaction was interrupted.

    Parameters
    ----------
    run : Path
        The run's folder.

    Returns
    -------
    str or None
        None if the run has no complete Parquet.
    """
    for name in (PARQUET, f"{PARQUET}.old"):
        if is_folder(run / name) and is_file(run / name / INDEX):
            return name
    return None


def foreign_entries(run: Path, *home: str, folders: bool = False) -> list[str]:
    """Describe entries of a folder that are neither files nor folders: links, pipes, devices.

    Parameters
    ----------
    run : Path
        The run's folder.
    *home : str
        Names of the folders from there to the examined one.
    folders : bool, optional
        Whether the examined folder contains folders; otherwise folders are foreign, too.

    Returns
    -------
    list of str
        A sentence per entry, or one about the folder itself if it cannot be listed.
    """
    wanted = FOLDER if folders else FILE
    where = "/".join(home)
    try:
        found = entries(run, *home)
    except OSError as error:
        return [f"{where}: {error.strerror or error}"]
    return [
        f"{where}/{name!a}"[:200] + f" is {kind}"
        for name, kind in found
        if kind not in {wanted, GONE} and not (folders and kind == FILE)
    ]


def added_parts(run: Path, run_id: str, compacted: Sequence[str]) -> list[Part]:
    """Return the additions to a run, without those that compaction merged into its Parquet."""
    try:
        found = [name for name, kind in entries(run, ADDITIONS) if kind == FOLDER]
    except OSError:
        return []
    return [open_part(run, run_id, "addition", ADDITIONS, n) for n in found if n not in compacted]


def open_part(run: Path, run_id: str, label: str, *home: str) -> Part:
    """Return a part with the tables of its index, or of its folders if the index is damaged.

    A part whose index names another run has no tables. A table that the index does not list is a
    damage, and not read.

    Parameters
    ----------
    run : Path
        The run's folder.
    run_id : str
        Id of the run.
    label : str
        Value of ``losses.what`` if the index cannot be read.
    *home : str
        Names of the folders from the run's folder to the part.
    """
    try:
        index = read_index(run, *home)
        if foreign := index.foreign(run_id):
            return Part(run, home, {}, ((label, None, f"{'/'.join(home)} {foreign}: not read"),))
        found = [name for name, kind in entries(run, *home) if kind == FOLDER]
        damages = [
            (
                name,
                None,
                f"{'/'.join(home)}/{name} is not in {INDEX}: it was added, and is not read",
            )
            for name in found
            if name in RECORDED and name not in index.tables
        ]
        part = Part(
            run,
            home,
            dict(index.tables),
            tuple(damages),
            index.checksums,
            derived=index.derived,
            keys_per_bucket=index.keys_per_bucket,
        )
    except (OSError, ValueError) as error:
        try:
            found = [name for name, kind in entries(run, *home) if kind == FOLDER]
        except OSError:
            found = []
        cause = error.strerror if isinstance(error, OSError) else str(error)
        reason = f"{INDEX} cannot be read ({cause}): tables are found by their folders instead"
        tables = dict.fromkeys(name for name in found if name in RECORDED)
        part = Part(run, home, tables, ((label, None, reason),))
    return replace(part, keys=KeyTexts(partial(_read_keys, part))) if KEYS in found else part


def add_to_budget(part: Part, budget: Budget) -> None:
    """Raise a budget by the sizes of all files of a part, before any of them is read."""
    for table in RECORDED.keys() & part.rows.keys():
        with suppress(OSError):
            for name, kind in entries(part.run, *part.home, table):
                if kind == FILE:
                    budget.add_file(disk_bytes(part.run.joinpath(*part.home, table, name)))


def read_part(part: Part, budget: Budget, unusable: Callable[[str, int], None]) -> PartContents:
    """Read all tables of a part.

    Parameters
    ----------
    part : Part
        The part.
    budget : Budget
        Memory that they may take; raised by the sizes of the files.
    unusable : callable
        Called with the name of each table and the number of its values that were out of range
        and are null now.
    """
    tables = {}
    damages = list(part.damages)
    add_to_budget(part, budget)
    for name in [name for name in RECORDED if name in part.rows]:
        try:
            verify(part, name)
            table, replaced = read_table(part, name, budget)
            _compare_rows(part, name, len(table))
            tables[name] = table
            unusable(name, replaced)
        except READ_ERRORS as error:
            damages.append((name, part.rows[name], unreadable(error)))
    return PartContents(part.name, tables, replace(part, damages=tuple(damages)).losses())


def unreadable(error: BaseException) -> str:
    """Return the reason why Parquet cannot be read, as one line.

    >>> unreadable(ValueError("not a number of rows"))
    'its Parquet cannot be read: not a number of rows'
    """
    if isinstance(error, ChangedError):
        return str(error)[:500]
    lines = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()
    return f"its Parquet cannot be read: {lines[0][:500]}"


def with_readable_footers(part: Part) -> Part:
    """Return a part without the tables whose checksum differs or that have no readable footer.

    Tables of an imported run are read on demand. Checking its additions when the run is opened
    limits the effect of a changed file to its own table.
    """
    rows = dict(part.rows)
    damages = list(part.damages)
    verified = dict(part.verified)
    for name in [name for name in RECORDED if name in part.rows]:
        try:
            if (found := verify(part, name)) is not None:
                verified[name] = found
                continue
            with ExitStack() as stack:
                rows[name] = sum(f.metadata.num_rows for f in open_files(part, name, stack))
        except READ_ERRORS as error:
            damages.append((name, rows.pop(name), unreadable(error)))
    return replace(part, rows=rows, damages=tuple(damages), verified=verified)


class ChangedError(ValueError):
    """The Parquet of a table is not the file that the index describes, for the stated reason."""


def verify(part: Part, name: str) -> tuple[tuple[int, ...], ...] | None:
    """Compare the Parquet of a table with the checksum and the number of rows in the index.

    Parameters
    ----------
    part : Part
        The part.
    name : str
        Name of the table.

    Returns
    -------
    tuple or None
        The `identity` of each file. None if they cannot be verified: the index has no checksums,
        or most of a file is holes, so that reading all of it could take hours.

    Raises
    ------
    ChangedError
        A file differs from its index.
    OSError, pyarrow.ArrowException
        A file is missing or cannot be read.
    """
    if not part.checksums:
        return None
    names = file_names(part, name)
    expected = part.checksums.get(name, ())
    if len(names) > max(1, len(expected)):
        raise ChangedError(
            f"{'/'.join((*part.home, name))} contains {len(names)} files instead of "
            f"{count_of(len(expected))}: none of them was read"
        )
    if len(names) < len(expected):
        raise ChangedError(
            f"{'/'.join((*part.home, name))} contains {len(names)} files instead of "
            f"{count_of(len(expected))}: some were removed, and none was read"
        )
    found = []
    rows = 0
    for i, file_name in enumerate(names):
        path = part.run.joinpath(*part.home, name, file_name)
        if path.lstat().st_size > _LENGTH_RATIO * disk_bytes(path) + _LENGTH_MARGIN:
            return None
        with open_inside(part.run, *part.home, name, file_name) as file:
            found.append(identity(file))
            if (checksum(file),) != expected[i : i + 1]:
                raise ChangedError(
                    f"{'/'.join((*part.home, name, file_name))} differs from the checksum in its "
                    "index: it was exchanged or damaged, and was not read"
                )
            with _for_arrow(file) as source:
                rows += pq.read_metadata(source).num_rows
    _compare_rows(part, name, rows)
    return tuple(found)


def count_of(n: int) -> str:
    """Return a number of files as a sentence has it.

    >>> count_of(1), count_of(3)
    ('one', '3')
    """
    return "one" if n == 1 else str(n)


def _compare_rows(part: Part, name: str, rows: int) -> None:
    expected = part.derived[name].rows if name in part.derived else part.rows.get(name)
    if expected is not None and rows != expected:
        raise ChangedError(
            f"{'/'.join((*part.home, name))} has {rows:,} rows instead of the {expected:,} in its "
            "index: it was exchanged or damaged, and was not read"
        )


def identity(file: BinaryIO) -> tuple[int, ...]:
    """Return values that change when a file is replaced: device, inode, size and time."""
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class ReplacedError(OSError):
    """A file was replaced by another one after its checksum was verified."""


def read_table(
    part: Part, name: str, budget: Budget, columns: Sequence[str] | None = None
) -> tuple[pa.Table, int]:
    """Read a table of a part, or some columns of it.

    Parameters
    ----------
    part : Part
        The part.
    name : str
        Name of the table.
    budget : Budget
        Memory that the table may take.
    columns : sequence of str, optional
        Names of the columns; all by default.

    Returns
    -------
    pyarrow.Table
        The rows, in the schema of this version.
    int
        Number of values that were out of range and are null now.

    Raises
    ------
    OSError, pyarrow.ArrowException, LimitExceededError, ValueError, TypeError
        The Parquet cannot be read, does not match the schema, or would take too much memory.
    """
    schema = schema_of(name, columns)
    if part.keys is None:
        table = _rows(part, name, schema, budget)
    else:
        stored = stored_schema(RECORDED[name], schema)
        in_buckets = len(part.checksums.get(name, ())) > 1 and has_buckets(RECORDED[name])
        wanted = stored.append(pa.field(ROW, pa.int64())) if in_buckets else stored
        table = _rows(part, name, wanted, budget)
        if in_buckets:
            table = table.take(pc.sort_indices(table[ROW])).select(stored.names)
        table = part.keys.with_texts(table, schema)
    return within_bounds(RECORDED[name], table)


def read_row_groups(part: Part, name: str) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows of a table that has no ids of keys, one row group after the other.

    Parameters
    ----------
    part : Part
        The part.
    name : str
        Name of the table.

    Yields
    ------
    tuple of pyarrow.Table and int
        Rows, and the number of their values that were out of range and are null now.

    Raises
    ------
    OSError, pyarrow.ArrowException, LimitExceededError, ValueError, TypeError
        As `read_table` raises them.
    """
    schema = arrow_schema(RECORDED[name])
    with ExitStack() as stack:
        for file in open_files(part, name, stack):
            present = [n for n in schema.names if n in file.schema_arrow.names]
            for i in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(i)
                budget = Budget()
                add_to_budget(part, budget)
                budget.spend(group.num_rows * len(present) * CELL_BYTES)
                budget.spend(max(group.total_byte_size, 0))
                rows = file.read_row_group(i, columns=present)
                columns = [
                    combine_chunks(rows[f.name].cast(f.type))
                    if f.name in present
                    else nulls(f.type, len(rows))
                    for f in schema
                ]
                yield within_bounds(RECORDED[name], pa.Table.from_arrays(columns, schema=schema))


def stored_files(part: Part, name: str) -> Iterator[tuple[pa.Schema, Iterator[pa.Table]]]:
    """Yield the files of a table of a finalised run as they are stored, with ids of keys.

    Parameters
    ----------
    part : Part
        The part.
    name : str
        Name of a recorded table, or that of the table of keys.

    Yields
    ------
    tuple of pyarrow.Schema and iterator of pyarrow.Table
        The columns that the file has, and its row groups.

    Raises
    ------
    OSError, pyarrow.ArrowException, LimitExceededError, ValueError, TypeError
        As `read_table` raises them.
    """
    if name == KEYS:
        known = KEYS_SCHEMA
    else:
        known = stored_schema(RECORDED[name], arrow_schema(RECORDED[name]))
        known = known.append(pa.field(ROW, pa.int64()))
    sizes = [
        disk_bytes(part.run.joinpath(*part.home, name, file_name))
        for file_name in file_names(part, name)
    ]
    with ExitStack() as stack:
        for file in open_files(part, name, stack):
            present = [f for f in known if f.name in file.schema_arrow.names]
            schema = pa.schema(present, metadata=known.metadata)
            yield schema, _stored_groups(file, schema, sizes)


def _stored_groups(
    file: pq.ParquetFile, schema: pa.Schema, sizes: Sequence[int]
) -> Iterator[pa.Table]:
    for i in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(i)
        budget = Budget()
        for size in sizes:
            budget.add_file(size)
        budget.spend(group.num_rows * len(schema) * CELL_BYTES + max(group.total_byte_size, 0))
        yield file.read_row_group(i, columns=schema.names).cast(schema)


def _rows(part: Part, name: str, schema: pa.Schema, budget: Budget) -> pa.Table:
    tables = []
    with ExitStack() as stack:
        for file in open_files(part, name, stack):
            tables.append(_columns(file, schema, budget))  # noqa: PERF401  the stack closes files
    return joined(tables) if tables else schema.empty_table()


def _read_keys(part: Part) -> pa.Table:
    """Return the table of keys of a finalised run."""
    verify(part, KEYS)
    budget = Budget()
    for name, kind in entries(part.run, *part.home, KEYS):
        if kind == FILE:
            budget.add_file(disk_bytes(part.run.joinpath(*part.home, KEYS, name)))
    return _rows(part, KEYS, KEYS_SCHEMA, budget)


def schema_of(name: str, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of a table, or of some columns of it.

    >>> schema_of("losses", ["what", "count"]).names
    ['what', 'count']
    """
    schema = arrow_schema(RECORDED[name])
    if columns is None:
        return schema
    return pa.schema([schema.field(c) for c in columns], metadata=schema.metadata)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables as one; empty tables are skipped."""
    filled = [table for table in tables if len(table)] or tables[:1]
    return combine_texts(filled[0] if len(filled) == 1 else pa.concat_tables(filled))


def file_names(part: Part, name: str) -> list[str]:
    """Return the names of the files of a table, in the order of their buckets."""
    names = [n for n, _ in entries(part.run, *part.home, name) if n.endswith(ENDING)]
    names.sort(key=lambda n: (len(n), n))  # part-2 before part-10
    if not names:
        kind = kind_of(part.run.joinpath(*part.home, name)) or "missing"
        raise FileNotFoundError(None, f"{name} is {kind}, without Parquet in it")
    return names


def open_files(part: Part, name: str, stack: ExitStack) -> Iterator[pq.ParquetFile]:
    """Yield the files of a table, opened.

    Parameters
    ----------
    part : Part
        The part.
    name : str
        Name of the table.
    stack : ExitStack
        Closes the files.

    Raises
    ------
    OSError, pyarrow.ArrowException
        A file cannot be opened, or was replaced since its checksum was verified.
    """
    for file_name in file_names(part, name):
        file = stack.enter_context(open_inside(part.run, *part.home, name, file_name))
        if identity(file) not in part.verified.get(name, (identity(file),)):
            raise ReplacedError(None, "it was replaced since the run was opened")
        source = stack.enter_context(_for_arrow(file))
        metadata = pq.read_metadata(source)
        columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
        texts = [c.path for c in columns if c.physical_type == "BYTE_ARRAY" and "." not in c.path]
        if name == KEYS:  # their encoding stores what neighbours share, not a dictionary
            texts.remove("key")
        yield pq.ParquetFile(source, metadata=metadata, read_dictionary=texts, pre_buffer=True)


def _for_arrow(file: BinaryIO) -> pa.NativeFile:
    """Return an open file as one that Arrow's threads read without the interpreter.

    At the interpreter's exit, a thread that needs it would abort the process.
    """
    return pa.OSFile(f"/dev/fd/{file.fileno()}")


def _columns(file: pq.ParquetFile, schema: pa.Schema, budget: Budget) -> pa.Table:
    """Read the columns of a schema from a file, cast to its types; missing ones are null."""
    metadata = file.metadata
    present = set(file.schema_arrow.names)
    wanted = [f.name for f in schema if f.name in present]
    rows = sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    if rows != metadata.num_rows or rows < 0:
        raise ValueError("its footer contains contradictory numbers of rows")
    declared = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    # Columns of nulls share their memory: all of them take that of one.
    filled = max(1, sum(n in present and not _is_null(metadata, n) for n in schema.names))
    budget.spend(rows * filled * CELL_BYTES + max(declared, 0))
    # Read the columns of a large table one by one: each is in memory twice while it is cast.
    table = file.read(columns=wanted) if rows < _MANY_ROWS else None
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in present or (table is None and _is_null(metadata, name)):
            arrays.append(nulls(kind, rows))
            continue
        column = (file.read(columns=[name]) if table is None else table)[name]
        if kind == pa.string() and _is_text(column.type):
            _spend_texts(column, budget)
        arrays.append(combine_chunks(column if column.type == kind else column.cast(kind)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _is_null(metadata: pq.FileMetaData, name: str) -> bool:
    """Return whether a column is null in each row, by the statistics of its file."""
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    if name not in paths:
        return False  # a nested column: the file has statistics for its parts only
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    statistics = ((g.column(paths.index(name)).statistics, g.num_rows) for g in groups)
    return all(s is not None and s.has_null_count and s.null_count == n for s, n in statistics)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and kind.value_type == pa.string())


def _spend_texts(column: pa.ChunkedArray, budget: Budget) -> None:
    """Subtract texts from the budget that a dictionary has once and a plain column per row."""
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        longest = pc.max(lengths).as_py() or 0
        if longest * len(chunk) > _UNCOUNTED_BYTES:
            budget.spend(pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0)
