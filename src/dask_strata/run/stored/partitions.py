"""Tables of a finalised run as Dask DataFrames: each partition reads its own part of the Parquet.

A file has the rows of one bucket of keys. Only its metadata is read where the DataFrame is made;
the processes that compute partitions have to see the run's folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.run.clock import align
from dask_strata.run.prepare import name_layers
from dask_strata.run.table_view import as_type
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.arrow import arrow_schema, within_bounds
from dask_strata.store.finalise.tables import part_name
from dask_strata.store.key_texts import KEYS, id_name, key_columns
from dask_strata.store.parquet import Part, file_names, verify
from dask_strata.store.safe_files import open_inside

#: Rows of a partition: larger files are divided at their row groups.
_MOST_ROWS = 1 << 20

#: Recorded tables whose rows are merged or completed from all rows; they are small.
WHOLE = frozenset({"processes", "graph_layers"})


@dataclass(frozen=True)
class Piece:
    """Rows of one partition.

    Attributes
    ----------
    files : tuple
        Name and size in bytes of each file, with the numbers of the row groups in it.
    start, stop : int
        Place of the first row among those of all partitions, and of the one after the last.
    """

    files: tuple[tuple[str, int, tuple[int, ...]], ...]
    start: int
    stop: int


def dask_frame(
    part: Part,
    name: str,
    offsets_ns: Mapping[str, int],
    npartitions: int | None = None,
    *,
    imported: bool = False,
) -> Any:
    """Return a table of a finalised run as a Dask DataFrame, without reading its rows.

    Parameters
    ----------
    part : Part
        The run's Parquet.
    name : str
        Name of a recorded table outside of `WHOLE`, or of a derived one.
    offsets_ns : mapping of str to int
        Nanoseconds to add to the times of each process, in recorded tables.
    npartitions : int, optional
        Largest number of partitions; by default one for each file, and more of large files.
    imported : bool, optional
        Whether the run was imported; see `clock.align`.
    """
    import dask
    import dask.dataframe as dd

    verify(part, KEYS)
    groups = list(_row_groups(part, name))
    pieces = _pieces(groups, npartitions)
    reader = PartitionReader(
        os.path.abspath(part.run), part.home, name, dict(offsets_ns), _nullable(groups),
        tuple(part.checksums[name]), imported,
    )  # fmt: skip
    starts = [piece.start for piece in pieces]
    divisions = (*starts, max(pieces[-1].stop - 1, 0))
    with dask.config.set({"dataframe.convert-string": False}):  # lists would become texts, too
        return dd.from_map(reader, pieces, meta=reader.empty(), divisions=divisions, label=name)


@dataclass(frozen=True)
class _RowGroup:
    file: str
    size: int
    number: int
    rows: int
    #: Columns that may have nulls, by the statistics, or that are not there.
    nullable: frozenset[str]


def _row_groups(part: Part, name: str) -> Iterator[_RowGroup]:
    for file_name in file_names(part, name):
        with open_inside(part.run, *part.home, name, file_name) as file:
            size = os.fstat(file.fileno()).st_size
            metadata = pq.read_metadata(file)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = [group.column(i) for i in range(group.num_columns)]
            without = {
                c.path_in_schema
                for c in columns
                if c.statistics is not None
                and c.statistics.has_null_count
                and not c.statistics.null_count
            }
            nullable = frozenset(arrow_schema(TABLES[name]).names) - without
            yield _RowGroup(file_name, size, number, group.num_rows, nullable)


def _nullable(groups: Sequence[_RowGroup]) -> frozenset[str]:
    return frozenset[str]().union(*(group.nullable for group in groups if group.rows))


def _pieces(groups: Sequence[_RowGroup], npartitions: int | None) -> list[Piece]:
    """Divide row groups into partitions, at least one; row groups without rows are left out."""
    filled = [group for group in groups if group.rows]
    total = sum(group.rows for group in filled)
    most = _MOST_ROWS if npartitions is None else max(1, -(-total // npartitions))
    pieces: list[list[_RowGroup]] = []
    n = 0
    for group in filled:
        other_file = npartitions is None and pieces and pieces[-1][0].file != group.file
        if not pieces or other_file or n + group.rows > most:
            pieces.append([])
            n = 0
        pieces[-1].append(group)
        n += group.rows
    while npartitions is not None and len(pieces) > max(npartitions, 1):
        # Row groups are indivisible: join the smallest neighbours.
        sizes = [sum(g.rows for g in piece) for piece in pieces]
        at = min(range(len(pieces) - 1), key=lambda i: sizes[i] + sizes[i + 1])
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    found, start = [], 0
    for piece in pieces:
        stop = start + sum(group.rows for group in piece)
        files = dict.fromkeys((group.file, group.size) for group in piece)
        numbers = {
            file: tuple(group.number for group in piece if group.file == file) for file, _ in files
        }
        found.append(Piece(tuple((f, size, numbers[f]) for f, size in files), start, stop))
        start = stop
    return found or [Piece((), 0, 0)]


@dataclass(frozen=True)
class PartitionReader:
    """Reads partitions of a table as `pandas.DataFrame`, as `TableView.to_pandas` returns them.

    Attributes
    ----------
    run : str
        The run's folder.
    home : tuple of str
        Names of the folders from there to the Parquet folder.
    name : str
        Name of the table.
    offsets_ns : dict of str to int
        Nanoseconds to add to the times of each process.
    nullable : frozenset of str
        Columns in which the whole table has nulls: pandas has no integers and booleans with nulls.
    checksums : tuple of int
        Checksums of the files: Dask names partitions after them, so that none is used for others.
    imported : bool
        Whether the run was imported; see `clock.align`.
    """

    run: str
    home: tuple[str, ...]
    name: str
    offsets_ns: dict[str, int]
    nullable: frozenset[str]
    checksums: tuple[int, ...]
    imported: bool

    def __call__(self, piece: Piece, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of a partition.

        Parameters
        ----------
        piece : Piece
            The partition.
        columns : sequence of str, optional
            Names of the columns; all by default.
        """
        import pandas as pd

        schema = self._schema(columns)
        rows = schema.empty_table() if not piece.files else self._rows(piece, schema)
        found = self._as_pandas(rows)
        found.index = pd.RangeIndex(piece.start, piece.start + len(found))
        return found

    def empty(self) -> Any:
        """Return a frame without rows, with the columns and types of all partitions."""
        return self._as_pandas(self._schema(None).empty_table())

    def _schema(self, columns: Sequence[str] | None) -> pa.Schema:
        schema = arrow_schema(TABLES[self.name])
        if columns is None:
            return schema
        return pa.schema([schema.field(c) for c in columns], metadata=schema.metadata)

    def _as_pandas(self, rows: pa.Table) -> Any:
        frame = rows.to_pandas()
        for field in rows.schema:
            if field.name in self.nullable and pa.types.is_integer(field.type):
                frame[field.name] = frame[field.name].astype("float64")
            elif field.name in self.nullable and pa.types.is_boolean(field.type):
                frame[field.name] = frame[field.name].astype(object)
        return frame

    def _rows(self, piece: Piece, schema: pa.Schema) -> pa.Table:
        if self.name not in RECORDED:
            return self._stored(piece, schema)
        wanted = list(schema.names)
        if self.offsets_ns and any(pa.types.is_timestamp(t) for t in schema.types):
            wanted.append("process")
        if self.name == "graph_tasks" and "layer" in wanted:
            wanted.append("group")
        keys = [key for key in key_columns(RECORDED[self.name]) if {key, f"{key}_type"} & {*wanted}]
        texts = {text for key in keys for text in (key, f"{key}_type")}
        full = arrow_schema(TABLES[self.name])
        plain = pa.schema([full.field(c) for c in dict.fromkeys(wanted) if c not in texts])
        ids = pa.schema([pa.field(id_name(key), pa.int32()) for key in keys])
        rows = self._stored(piece, pa.schema([*plain, *ids]))
        rows = align(rows, self.offsets_ns, imported=self.imported)
        if self.name == "graph_tasks" and "layer" in wanted:
            rows = name_layers(rows, self._layers())
        for key in keys:
            found = self._texts(rows[id_name(key)])
            for column, values in zip((key, f"{key}_type"), found, strict=True):
                rows = rows.append_column(column, values)
        columns = [as_type(rows[field.name], field.type) for field in schema]
        rows = pa.Table.from_arrays(columns, schema=schema)
        return within_bounds(RECORDED[self.name], rows)[0]

    def _stored(self, piece: Piece, schema: pa.Schema) -> pa.Table:
        """Return columns of the files of a partition; those that are not there are null."""
        tables = []
        for file_name, size, groups in piece.files:
            with self._open(self.name, file_name) as file:
                if os.fstat(file.fileno()).st_size != size:
                    raise self._changed(file_name)
                parquet = pq.ParquetFile(file)
                present = [c for c in schema.names if c in parquet.schema_arrow.names]
                found = parquet.read_row_groups(list(groups), columns=present)
            columns = [
                as_type(found[field.name], field.type)
                if field.name in present
                else pa.chunked_array([pa.nulls(len(found), field.type)])
                for field in schema
            ]
            tables.append(pa.Table.from_arrays(columns, schema=schema))
        rows = pa.concat_tables(tables)
        if len(rows) != piece.stop - piece.start:
            raise self._changed(piece.files[0][0])
        return rows

    def _open(self, table: str, file_name: str) -> BinaryIO:
        return open_inside(Path(self.run), *self.home, table, file_name)

    def _changed(self, file_name: str) -> StrataError:
        return StrataError(
            f"{'/'.join((self.run, *self.home, self.name, file_name))} was replaced since the run "
            "was opened.",
            hint="Open the run again.",
        )

    def _layers(self) -> pa.Table:
        folder = Path(self.run, *self.home, "graph_layers")
        tables = [pq.read_table(path, columns=["layer"]) for path in sorted(folder.glob("*"))]
        layer = arrow_schema(RECORDED["graph_layers"]).field("layer")
        rows = [table.cast(pa.schema([pa.field("layer", pa.string())])) for table in tables]
        return pa.concat_tables(rows) if rows else pa.schema([layer]).empty_table()

    def _texts(self, ids: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Return the texts and types of keys; only row groups of `keys` that have them are read."""
        array = ids.combine_chunks()
        needed = np.sort(pc.unique(array).drop_null().to_numpy(zero_copy_only=False))
        texts, types = [], []
        with self._open(KEYS, part_name(0)) as file:
            parquet = pq.ParquetFile(file)
            if len(needed) and not 0 <= needed[0] <= needed[-1] < parquet.metadata.num_rows:
                raise ValueError(f"ids of keys are not in the table of {KEYS}")
            start = 0
            for number in range(parquet.num_row_groups):
                stop = start + parquet.metadata.row_group(number).num_rows
                first, last = np.searchsorted(needed, [start, stop])
                if last > first:
                    group = parquet.read_row_group(number, columns=["key", "key_type"])
                    found = group.take(pa.array(needed[first:last] - start))
                    texts += found["key"].cast(pa.string()).chunks
                    types += found["key_type"].cast(pa.string()).chunks
                start = stop
        places = pa.array(
            np.searchsorted(needed, array.fill_null(0).to_numpy()),
            mask=array.is_null().to_numpy(zero_copy_only=False),
        )
        key, key_type = (pa.chunked_array(c, pa.string()).combine_chunks() for c in (texts, types))
        return _taken(key, places), _taken(key_type, places)


def _taken(values: pa.Array, places: pa.Array) -> pa.ChunkedArray:
    """Return a dictionary of values, so that each text is in memory once."""
    dictionary = values.dictionary_encode()
    if isinstance(dictionary, pa.ChunkedArray):
        dictionary = dictionary.combine_chunks()
    indices = dictionary.indices.take(places)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, dictionary.dictionary)])
