"""Reading Parquet of a run: its main part, and what was added to it later.

What a file says of itself is held against the schema, and against its size, before any of it
is read. What cannot be read costs its own table, and a row of `losses` says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema, in_one_piece, nulls, whole, within_bounds
from dask_strata.store.index import INDEX, read_index
from dask_strata.store.limits import CELL_BYTES, Budget, TooMuchError
from dask_strata.store.manifest import ADDITIONS, PARQUET
from dask_strata.store.safe_files import (
    disk_bytes,
    entries,
    is_file,
    is_folder,
    kind_of,
    open_inside,
)

#: How the names of Parquet end.
ENDING = ".parquet"

#: What may go wrong with a file that anyone may have made.
READ_ERRORS = (
    OSError,
    pa.ArrowException,
    TooMuchError,
    ValueError,
    TypeError,
    LookupError,
    MemoryError,
)

#: Bytes that a column of texts takes before they are counted one by one.
_FEW_BYTES = 1 << 20

#: Rows from which on the columns of a table are read one by one.
_MANY_ROWS = 1 << 17


@dataclass(frozen=True)
class Part:
    """A folder of Parquet inside of a run, by table.

    Attributes
    ----------
    home : tuple of str
        Names of the folders that lead to it.
    rows : mapping of str to int or None
        How many rows each table has; None where that is not known.
    damages : tuple
        What cannot be read, how many rows of it are lost if that is known, and why.
    checksums : mapping of str to int
        CRC-32 of the file of each table, where who wrote them told it.
    looked_at : mapping of str to tuple
        Which file each table was in when its checksum was found to be that.
    """

    run: Path
    home: tuple[str, ...]
    rows: Mapping[str, int | None]
    damages: tuple[tuple[str, int | None, str], ...] = ()
    checksums: Mapping[str, int] = field(default_factory=dict)
    looked_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name, as far as there are several."""
        return self.home[-1]

    def losses(self) -> list[dict[str, Any]]:
        """Return rows of `losses`."""
        return [
            {"what": what, "count": count, "reason": reason, "where": "/".join(self.home)}
            for what, count, reason in self.damages
        ]


@dataclass(frozen=True)
class PartContents:
    """What was read of a part: its tables, and rows of `losses` about those that were not."""

    name: str
    tables: Mapping[str, pa.Table]
    losses: list[dict[str, Any]]


def main_home(run: Path) -> str | None:
    """Return the name of the folder with the run's Parquet, also after an interruption."""
    for name in (PARQUET, f"{PARQUET}.old"):
        if is_folder(run / name) and is_file(run / name / INDEX):
            return name
    return None


def strangers(run: Path, *home: str, folders: bool = False) -> list[str]:
    """Return what is wrong with what is in a folder of a run: links, pipes, odd names.

    Parameters
    ----------
    run : Path
        The run's folder.
    *home : str
        Names of the folders that lead to the one that is meant.
    folders : bool, optional
        Whether folders belong there rather than files.
    """
    wanted = "a folder" if folders else "a file"
    where = "/".join(home)
    try:
        found = entries(run, *home)
    except OSError as error:
        return [f"{where}: {error.strerror or error}"]
    return [
        f"{where}/{name!a}"[:200] + f" is {kind}"
        for name, kind in found
        if kind not in {wanted, "gone"} and not (folders and kind == "a file")
    ]


def added_parts(run: Path, there: Sequence[str]) -> list[Part]:
    """Return what was added to a run and is not in its Parquet already."""
    try:
        found = [name for name, kind in entries(run, ADDITIONS) if kind == "a folder"]
    except OSError:
        return []
    return [part(run, "addition", ADDITIONS, n) for n in found if n not in there]


def part(run: Path, what: str, *home: str) -> Part:
    """Return a part; without a readable index its tables are those that it has folders of."""
    try:
        index = read_index(run, *home)
        return Part(run, home, dict(index.tables), checksums=index.checksums)
    except (OSError, ValueError) as error:
        try:
            found = [name for name, kind in entries(run, *home) if kind == "a folder"]
        except OSError:
            found = []
        why = error.strerror if isinstance(error, OSError) else str(error)
        reason = f"{INDEX} cannot be read ({why}): its tables are those that it has folders of"
        tables = dict.fromkeys(name for name in found if name in RECORDED)
        return Part(run, home, tables, ((what, None, reason),))


def allow(part: Part, budget: Budget) -> None:
    """Take the files of all tables of a part into account, before any of it is read."""
    for table in RECORDED.keys() & part.rows.keys():
        with suppress(OSError):
            for name, kind in entries(part.run, *part.home, table):
                if kind == "a file":
                    budget.allow(disk_bytes(part.run.joinpath(*part.home, table, name)))


def read_part(part: Part, budget: Budget, unusable: Callable[[str, int], None]) -> PartContents:
    """Read all tables of a part.

    Parameters
    ----------
    part : Part
        The part.
    budget : Budget
        Of the memory that they may take.
    unusable : callable
        Is told how many values of a table are beyond all bounds, and null now.
    """
    tables = {}
    damages = list(part.damages)
    allow(part, budget)
    for name in [name for name in RECORDED if name in part.rows]:
        try:
            tables[name], odd = read_table(part, name, budget)
            unusable(name, odd)
            if tables[name].num_rows != (part.rows[name] or tables[name].num_rows):
                damages.append((name, None, "its Parquet has not as many rows as its index says"))
        except READ_ERRORS as error:
            damages.append((name, part.rows[name], unreadable(error)))
    return PartContents(part.name, tables, replace(part, damages=tuple(damages)).losses())


def unreadable(error: BaseException) -> str:
    """Return why Parquet cannot be read, as one line."""
    lines = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()
    return f"its Parquet cannot be read: {lines[0][:500]}"


def with_readable_ends(part: Part) -> Part:
    """Return a part without the tables whose Parquet has no end that can be read.

    Those of an imported run are read one by one, when they are looked at; what is cut must be
    known before, so that it takes no more with it than itself.
    """
    rows = dict(part.rows)
    damages = list(part.damages)
    for name in RECORDED.keys() & part.rows.keys():
        try:
            with ExitStack() as stack:
                rows[name] = sum(f.metadata.num_rows for f in _files(part, name, stack))
        except READ_ERRORS as error:
            damages.append((name, rows.pop(name), unreadable(error)))
    return replace(part, rows=rows, damages=tuple(damages))


def identity(file: BinaryIO) -> tuple[int, ...]:
    """Return what differs between a file and another one that took its place."""
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class ExchangedError(OSError):
    """A file is another one than that which was looked at before."""


def read_table(
    part: Part, name: str, budget: Budget, columns: Sequence[str] | None = None
) -> tuple[pa.Table, int]:
    """Read a table of a part, or some columns of it; and how many values were beyond all bounds.

    Raises
    ------
    OSError, pyarrow.ArrowException, TooMuchError, ValueError, TypeError
        It cannot be read, is not of this schema, or would take too much memory.
    """
    schema = schema_of(name, columns)
    found = []
    with ExitStack() as stack:
        for file in _files(part, name, stack):
            found.append(_columns(file, schema, budget))  # noqa: PERF401  files close behind it
    return within_bounds(RECORDED[name], joined(found) if found else schema.empty_table())


def schema_of(name: str, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of a table, or of some columns of it."""
    whole_schema = arrow_schema(RECORDED[name])
    if columns is None:
        return whole_schema
    return pa.schema([whole_schema.field(c) for c in columns], metadata=whole_schema.metadata)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables as one; those without rows cost nothing."""
    some = [table for table in tables if len(table)] or tables[:1]
    return whole(some[0] if len(some) == 1 else pa.concat_tables(some))


def _files(part: Part, name: str, stack: ExitStack) -> Iterator[pq.ParquetFile]:
    """Yield the files of a table, opened."""
    names = [n for n, _ in entries(part.run, *part.home, name) if n.endswith(ENDING)]
    if not names:
        what = kind_of(part.run.joinpath(*part.home, name)) or "not there"
        raise FileNotFoundError(None, f"{name} is {what}, without Parquet in it")
    for file_name in names:
        file = stack.enter_context(open_inside(part.run, *part.home, name, file_name))
        if part.looked_at.get(name, identity(file)) != identity(file):
            raise ExchangedError(None, "it was exchanged since it was looked at")
        metadata = pq.read_metadata(file)
        columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
        texts = [c.path for c in columns if c.physical_type == "BYTE_ARRAY" and "." not in c.path]
        yield pq.ParquetFile(file, metadata=metadata, read_dictionary=texts, pre_buffer=True)


def _columns(file: pq.ParquetFile, schema: pa.Schema, budget: Budget) -> pa.Table:
    """Read those columns of a file that the schema has, as the schema has them."""
    metadata = file.metadata
    there = set(file.schema_arrow.names)
    wanted = [f.name for f in schema if f.name in there]
    rows = sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    if rows != metadata.num_rows or rows < 0:
        raise ValueError("it contradicts itself about how many rows it has")
    declared = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    budget.spend(rows * len(schema) * CELL_BYTES + max(declared, 0))
    # One by one where there is much of each: what is read and what becomes of it are there at once.
    table = file.read(columns=wanted) if rows < _MANY_ROWS else None
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in there or (table is None and _is_null(metadata, name)):
            arrays.append(nulls(kind, rows))
            continue
        column = (file.read(columns=[name]) if table is None else table)[name]
        if kind == pa.string() and _is_text(column.type):
            _spend_texts(column, budget)
        arrays.append(in_one_piece(column if column.type == kind else column.cast(kind)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _is_null(metadata: pq.FileMetaData, name: str) -> bool:
    """Return whether a file says that a column has no value in any row."""
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    if name not in paths:
        return False  # its parts have columns of their own
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    statistics = ((g.column(paths.index(name)).statistics, g.num_rows) for g in groups)
    return all(s is not None and s.has_null_count and s.null_count == n for s, n in statistics)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and kind.value_type == pa.string())


def _spend_texts(column: pa.ChunkedArray, budget: Budget) -> None:
    """Take texts into account that are in a dictionary once, and will be in many rows."""
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        longest = pc.max(lengths).as_py() or 0
        if longest * len(chunk) > _FEW_BYTES:
            budget.spend(pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0)
