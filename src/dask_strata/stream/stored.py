"""Reading the Parquet of a run in the order of its processes, and of the rows of each.

A finalised table is divided by keys. Its rows have their places among all rows of the table, in
which the rows of a process are in order. Each file is read once, from its start to its end, as far
as all tables have their processes in the same order; a few thousand rows are in memory at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dask_strata.schema import RECORDED, WITHOUT_SEQ
from dask_strata.store.arrow import arrow_schema, nulls, within_bounds
from dask_strata.store.index import Index
from dask_strata.store.key_texts import ROW, has_buckets, stored_schema
from dask_strata.store.on_demand import divide
from dask_strata.store.parquet import Part, open_files, open_part
from dask_strata.stream.batch import Batch, Chunks, Ints, merged, one_batch

#: Rows that are read at once from each table.
_ROWS = 1 << 13


@dataclass(frozen=True)
class _Block:
    """Rows of one process with neighbouring places in a table.

    Attributes
    ----------
    first, end : int
        Place of the first row, and the place after the last one.
    seqs : numpy array
        Numbers of the rows.
    """

    first: int
    end: int
    seqs: Ints


class StoredRows:
    """The rows of a run's Parquet.

    Parameters
    ----------
    run : Path
        The run's folder.
    run_id : str
        Id of the run.
    home : str
        Name of the Parquet folder.
    index : Index
        Its index.

    Attributes
    ----------
    damaged : list of str
        Tables that cannot be read.
    """

    def __init__(self, run: Path, run_id: str, home: str, index: Index) -> None:
        self._index = index
        self._part, unverified = divide(open_part(run, run_id, "Parquet", home))
        if unverified.rows:  # an earlier version wrote the index, without checksums
            self._part = replace(self._part, rows={**unverified.rows, **self._part.rows})
        self.damaged = [name for name, _, _ in unverified.damages]

    def batches(
        self, tables: Collection[str], start: Mapping[str, int], without: Collection[str]
    ) -> Iterator[Batch]:
        """Yield the rows of some tables.

        Parameters
        ----------
        tables : collection of str
            The tables.
        start : mapping of str to int
            Number of the first row by process, if it is not 0.
        without : collection of str
            Processes whose rows are left out.
        """
        names = [n for n in RECORDED if self._part.rows.get(n) and not RECORDED[n].added]
        with ExitStack() as stack:
            found: dict[str, dict[str, list[_Block]]] = {}
            files: dict[str, _Table] = {}
            for name in names:
                if name in tables:
                    files[name] = _Table(self._part, name, stack)
                    if name not in WITHOUT_SEQ:
                        found[name] = _blocks(files[name], without)
            found.update(self._unnumbered(files, without, stack))
            pa.default_memory_pool().release_unused()
            for process in self._order(found):
                chunks = [
                    (name, _rows(files[name], blocks[process], start.get(process, 0)))
                    for name, blocks in found.items()
                    if process in blocks
                ]
                yield from merged(process, chunks)

    def in_file_order(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of all tables, one after the other, with the name of the table."""
        for name in [n for n in RECORDED if self._part.rows.get(n)]:
            with ExitStack() as stack:
                table = _Table(self._part, name, stack)
                end = max((int(places[-1]) + 1 for places in table.places()), default=0)
                for at in range(0, end, _ROWS):
                    rows = table.rows(at, min(end, at + _ROWS))
                    if rows is not None:
                        yield name, rows

    def _order(self, found: Mapping[str, Mapping[str, list[_Block]]]) -> list[str]:
        """Return the processes in the order of the index, which is that of the rows."""
        known = [segment.process for segment in self._index.segments]
        names = {process for blocks in found.values() for process in blocks}
        return [*(p for p in known if p in names), *sorted(names - set(known))]

    def _unnumbered(
        self, files: Mapping[str, _Table], without: Collection[str], stack: ExitStack
    ) -> dict[str, dict[str, list[_Block]]]:
        """Return the blocks of the tables that have no column of numbers, with their numbers.

        The index has these numbers. Of rows that an earlier version compacted it has not: they get
        the numbers that no other row of the process has, in the order of the tables.
        """
        places = {n: _places(files[n], without) for n in files if n in WITHOUT_SEQ}
        numbers: dict[str, dict[str, list[Ints]]] = defaultdict(lambda: defaultdict(list))
        for segment in self._index.segments:
            for table, seq, n in segment.unnumbered:
                numbers[table][segment.process].append(np.arange(seq, seq + n))
        known = {
            (table, process): np.concatenate(found)
            for table, each in numbers.items()
            for process, found in each.items()
        }
        missing = {
            process
            for table, each in places.items()
            for process, found in each.items()
            if sum(b - a for a, b in found) != len(known.get((table, process), ()))
        }
        if missing:
            known |= self._assigned(missing, stack)
        return {
            table: {
                process: _numbered(found, known[table, process])
                for process, found in each.items()
                if (table, process) in known
            }
            for table, each in places.items()
        }

    def _assigned(self, processes: set[str], stack: ExitStack) -> dict[tuple[str, str], Ints]:
        """Return numbers for the rows of tables without numbers, those that other rows lack."""
        names = [n for n in RECORDED if self._part.rows.get(n) and not RECORDED[n].added]
        used: dict[str, list[Ints]] = {process: [] for process in processes}
        counts: dict[str, dict[str, int]] = {}
        for name in names:
            table = _Table(self._part, name, stack)
            if name in WITHOUT_SEQ:
                found = _places(table, ())
                counts[name] = {p: sum(b - a for a, b in each) for p, each in found.items()}
            else:
                for process, blocks in _blocks(table, ()).items():
                    used.setdefault(process, [])
                    used[process] += [block.seqs for block in blocks]
        assigned = {}
        for process in processes:
            taken = np.unique(np.concatenate([np.empty(0, np.int64), *used[process]]))
            n = sum(each.get(process, 0) for each in counts.values())
            free = np.setdiff1d(np.arange(len(taken) + n), taken)[:n]
            if len(free) < n:  # rows were lost: later numbers are free
                last = int(max(taken[-1:].max(initial=-1), free.max(initial=-1)))
                free = np.concatenate([free, np.arange(last + 1, last + 1 + n - len(free))])
            for name, each in counts.items():
                own = each.get(process, 0)
                assigned[name, process], free = free[:own], free[own:]
        return assigned


class _Table:
    """The files of one table, each read forwards.

    Parameters
    ----------
    part : Part
        The Parquet folder.
    name : str
        Name of the table.
    stack : ExitStack
        Closes the files.
    """

    def __init__(self, part: Part, name: str, stack: ExitStack) -> None:
        self.name, self._part = name, part
        self.schema = arrow_schema(RECORDED[name])
        self._stored = self.schema
        self._in_buckets = False
        if part.keys is not None:
            self._stored = stored_schema(RECORDED[name], self.schema)
            n_files = len(part.checksums.get(name, ()))
            self._in_buckets = n_files > 1 and has_buckets(RECORDED[name])
        self._files = [_File(f, in_buckets=self._in_buckets) for f in open_files(part, name, stack)]

    def columns(self, names: list[str]) -> tuple[Ints, pa.Table]:
        """Return the places of all rows in ascending order, and some columns of them."""
        found = [file.columns(names) for file in self._files]
        places = np.concatenate([each for each, _ in found])
        rows = pa.concat_tables([each for _, each in found]).unify_dictionaries()
        if len(found) > 1:
            order = np.argsort(places, kind="stable")
            return places[order], rows.take(pa.array(order))
        return places, rows

    def places(self) -> list[Ints]:
        """Return the places of the rows of each file that has some."""
        found = [file.columns([])[0] for file in self._files]
        return [places for places in found if len(places)]

    def rows(self, first: int, end: int) -> pa.RecordBatch | None:
        """Return the rows with places in a range, in order; None if there is none."""
        found = [part for file in self._files if (part := file.rows(first, end, self._stored))]
        if not found:
            return None
        places = np.concatenate([each for each, _ in found])
        rows = pa.concat_tables([each for _, each in found]).unify_dictionaries()
        if len(found) > 1:
            rows = rows.take(pa.array(np.argsort(places, kind="stable")))
        rows = rows.combine_chunks()
        if self._part.keys is not None:
            rows = self._part.keys.with_texts(rows, self.schema)
        return one_batch(within_bounds(RECORDED[self.name], rows)[0])


class _File:
    """One Parquet file of a table, with the places of its rows.

    Parameters
    ----------
    file : pyarrow.parquet.ParquetFile
        The file.
    in_buckets : bool
        Whether it has the places of its rows in the whole table as a column.
    """

    def __init__(self, file: pq.ParquetFile, *, in_buckets: bool) -> None:
        self._file, self._in_buckets = file, in_buckets
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        self._batches: Iterator[tuple[Ints, pa.Table]] = iter(())
        self._places: Ints = np.empty(0, np.int64)
        self._rows: pa.Table | None = None
        self._firsts = self._first_places()
        #: Row group that is being read, and the place up to which rows have been read.
        self._group, self._done = -1, 0

    def _first_places(self) -> Ints:
        """Return the place of the first row of each row group."""
        if not self._in_buckets:
            return self._starts[:-1]
        found = []
        for i in range(self._file.num_row_groups):
            rows = self._file.read_row_group(i, columns=[ROW])[ROW]
            found.append(rows[0].as_py() if len(rows) else 0)
        return np.array(found, np.int64)

    def columns(self, names: list[str]) -> tuple[Ints, pa.Table]:
        """Return the places of all rows, and some columns of them."""
        present = [name for name in names if name in self._file.schema_arrow.names]
        wanted = [*present, *([ROW] if self._in_buckets else [])]
        rows = self._file.read(columns=wanted)
        for name in set(names) - set(present):
            rows = rows.append_column(name, pa.nulls(len(rows), pa.int64()))
        if not self._in_buckets:
            return np.arange(self._file.metadata.num_rows), rows.select(names)
        return np.asarray(rows[ROW].to_numpy(), np.int64), rows.select(names)

    def rows(self, first: int, end: int, schema: pa.Schema) -> tuple[Ints, pa.Table] | None:
        """Return the places and the rows in a range of places; None if there is none.

        Ranges in ascending order are read once.
        """
        if not len(self._firsts) or end <= self._firsts[0]:
            return None
        group = max(0, int(np.searchsorted(self._firsts, first, side="right")) - 1)
        if first < self._done or group > self._group:
            self._batches = self._read(group, schema)
            self._places, self._rows = next(self._batches, (np.empty(0, np.int64), None))
        self._done = end
        found: list[tuple[Ints, pa.Table]] = []
        while self._rows is not None:
            a, b = (int(i) for i in np.searchsorted(self._places, [first, end]))
            if b > a:
                found.append((self._places[a:b], self._rows.slice(a, b - a)))
            if b < len(self._places):
                break  # the next range begins in these rows
            self._places, self._rows = next(self._batches, (np.empty(0, np.int64), None))
        if not found:
            return None
        return (
            np.concatenate([places for places, _ in found]),
            pa.concat_tables([rows for _, rows in found]),
        )

    def _read(self, group: int, schema: pa.Schema) -> Iterator[tuple[Ints, pa.Table]]:
        present = set(self._file.schema_arrow.names)
        names = [n for n in schema.names if n in present]
        wanted = [*names, *([ROW] if self._in_buckets else [])]
        for i in range(group, self._file.num_row_groups):
            self._group, at = i, int(self._starts[i])
            for batch in self._file.iter_batches(_ROWS, row_groups=[i], columns=wanted):
                rows = pa.Table.from_batches([batch])
                places = np.arange(at, at + len(rows))
                if self._in_buckets:
                    places = np.asarray(rows[ROW].to_numpy(), np.int64)
                at += len(rows)
                columns = [
                    rows[f.name].cast(f.type) if f.name in present else nulls(f.type, len(rows))
                    for f in schema
                ]
                yield places, pa.Table.from_arrays(columns, schema=schema)


def _runs(table: _Table, without: Collection[str], columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield process, first and last position, places and columns of rows of the same process."""
    places, rows = table.columns(["process", *columns])
    codes = rows["process"].combine_chunks()
    codes = codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()
    processes = codes.dictionary.to_pylist()
    numbers = np.asarray(codes.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(places) != 1)) + 1
    edges = [0, *changes.tolist(), len(numbers)] if len(numbers) else []
    for a, b in pairwise(edges):
        process = processes[numbers[a]] if numbers[a] >= 0 else None
        if process is not None and process not in without:
            yield process, a, b, places, rows


def _places(table: _Table, without: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of places of the rows of processes."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for process, a, b, places, _ in _runs(table, without, []):
        found[process].append((int(places[a]), int(places[b - 1]) + 1))
    return found


def _blocks(table: _Table, without: Collection[str]) -> dict[str, list[_Block]]:
    """Return the rows of processes with their numbers."""
    found: dict[str, list[_Block]] = defaultdict(list)
    seqs: Ints | None = None
    for process, a, b, places, rows in _runs(table, without, ["seq"]):
        if seqs is None:
            column = pc.fill_null(rows["seq"].combine_chunks(), -1)
            seqs = np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
        edges = [a, *(np.flatnonzero(np.diff(seqs[a:b]) <= 0) + 1 + a).tolist(), b]
        for i, j in pairwise(edges):
            # Those of files that were imported later have no number, and losses that a reader
            # found have the number 0, which is that of the first row about the process.
            if seqs[i] > 0 or (seqs[i] == 0 and table.name != "losses"):
                found[process].append(
                    _Block(int(places[i]), int(places[j - 1]) + 1, seqs[i:j].copy())
                )
    return found


def _numbered(ranges: list[tuple[int, int]], seqs: Ints) -> list[_Block]:
    blocks = []
    for a, b in ranges:
        blocks.append(_Block(a, b, seqs[: b - a]))
        seqs = seqs[b - a :]
    return blocks


def _rows(table: _Table, blocks: list[_Block], start: int) -> Chunks:
    """Yield the rows of blocks with numbers from a number on."""
    for block in blocks:
        skipped = int(np.searchsorted(block.seqs, start))
        for at in range(block.first + skipped, block.end, _ROWS):
            end = min(block.end, at + _ROWS)
            seqs = block.seqs[at - block.first : end - block.first]
            rows = table.rows(at, end)
            if rows is not None:
                yield seqs, rows
