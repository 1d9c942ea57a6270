"""Compute derived tables in limited memory, then on disk, then in more memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.run.duckdb_session import computing, connect, execute, fetch, register
from dask_strata.run.key_ids import KEYS_TABLE, KeyIds
from dask_strata.run.key_prefix import KEY_PREFIX_MACROS
from dask_strata.store.interruptible import interruptible

#: Memory of derived tables, in bytes, before DuckDB spills them to disk.
WORKING_BYTES = 512 << 20

#: Rows of a part of an answer that is read in parts.
BATCH_ROWS = 1 << 15

_T = TypeVar("_T")


class Workspace:
    """A DuckDB database for the tables of one run, with a folder for data that exceeds memory.

    The folder is made in the folder of temporary files (``TMPDIR``), is readable by its owner
    only, and is removed with this object. Without such a folder, only memory is used.

    Parameters
    ----------
    memory_bytes : int, optional
        Initial memory limit, in bytes.
    """

    def __init__(self, memory_bytes: int = WORKING_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._keys = KeyIds()
        self._remove: Callable[[], object]
        self.connection = self._connect()
        for macro in KEY_PREFIX_MACROS:
            execute(self.connection, macro)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            folder = tempfile.mkdtemp(prefix="dask-strata-")
        except OSError:
            self._remove = lambda: None
            return connect()
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        connection = connect(f"{self._memory_bytes}B", Path(folder), files=True)
        # Leave half of the free space to other programs.
        largest = shutil.disk_usage(folder).free // 2
        execute(connection, "set max_temp_directory_size = ?", f"{largest}B")
        return connection

    def add(self, name: str, table: pa.Table) -> None:
        """Add a recorded table with an id for each key; the table ``_keys`` lists the keys so far.

        Parameters
        ----------
        name : str
            Name of the table.
        table : pyarrow.Table
            Its rows.
        """
        with_ids, keys = self._keys.add_to(table), self._keys.keys()

        def add() -> None:
            register(self.connection, name, with_ids)
            self.connection.register(KEYS_TABLE, keys)

        interruptible(self.connection, add)
        pa.default_memory_pool().release_unused()

    def view(self, name: str, query: str) -> None:
        """Add a view, in place of the one with this name."""
        execute(self.connection, f'create or replace temp view "{name}" as {query}')

    def table(self, name: str, query: str) -> None:
        """Add a table with the rows of a query.

        Raises
        ------
        StrataError
            A value in the record cannot be computed with, or memory is not sufficient.
        """
        # `or replace`: an interrupted query leaves a table.
        make = f'create or replace temp table "{name}" as {query}'
        with computing():
            self.do(lambda: self.connection.execute(make))

    def fetch(self, query: str, parameters: list[Any] | None = None) -> pa.Table:
        """Return the answer to a trusted query; errors as `table` raises them."""
        with computing():
            return self.do(lambda: fetch(self.connection, query, parameters))

    def batches(
        self, query: str, parameters: list[Any] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a trusted query in parts, at least one; another query ends it.

        Parameters
        ----------
        query : str
            The query.
        parameters : list, optional
            Values of its parameters.
        batch_rows : int, optional
            Most rows of a part.
        """

        def first() -> tuple[pa.RecordBatchReader, pa.RecordBatch]:
            relation = self.connection.sql(query, params=parameters)
            reader = relation.to_arrow_reader(batch_rows)
            return reader, next(reader, pa.RecordBatch.from_pylist([], reader.schema))

        with computing():
            reader, batch = self.do(first)
            while batch is not None:
                yield batch
                batch = interruptible(self.connection, partial(next, reader, None))

    def write(self, name: str, path: Path, order: str | None, rows_per_group: int) -> int:
        """Write a table as Parquet, sorted by the ids of keys, and return the number of rows.

        Parameters
        ----------
        name : str
            Name of the table.
        path : Path
            The file.
        order : str or None
            Order of rows with the same key, or without keys; None for that of the table.
        rows_per_group : int
            Rows of a row group.

        Raises
        ------
        OSError
            The file cannot be written.
        StrataError
            A value in the record cannot be computed with, or memory is not sufficient.
        """
        columns = stored_columns(self.connection, name)
        keys = ["_key"] if "key_id" in columns else []
        by = [*keys, *([order] if order else [])]
        sorted_by = f" order by {', '.join(by)}" if by else ""
        query = f'select {columns} from "{name}"{sorted_by}'  # noqa: S608  own names
        options = f"format parquet, compression zstd, row_group_size {rows_per_group}"
        target = str(path).replace("'", "''")
        make = f"copy ({query}) to '{target}' ({options})"
        try:
            with computing():
                copied = self.do(lambda: self.connection.execute(make))
        except duckdb.IOException as error:
            raise OSError(None, str(error).splitlines()[0]) from error
        return int(copied.fetchall()[0][0])

    def do(self, action: Callable[[], _T]) -> _T:
        """Return the result of an action with the connection; double the memory until it suffices.

        Parameters
        ----------
        action : callable
            Runs a query that can be repeated.

        Raises
        ------
        StrataError
            Neither half of the machine's memory nor the disk is sufficient.
        InterruptedQueryError
            The query was interrupted.
        """
        while True:
            try:
                return interruptible(self.connection, action)
            except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
                if "parquet" in str(error).lower():
                    raise
                if 2 * self._memory_bytes > _physical_bytes():
                    raise StrataError(
                        f"The query needs more than {self._memory_bytes / 2**30:.3g} GiB of "
                        "memory, the most that it may use on this machine, and more disk space "
                        f"than temporary files may use: {str(error).splitlines()[0]}",
                        hint="Set TMPDIR to a folder on a larger disk, or use a larger machine.",
                    ) from error
                self._memory_bytes *= 2
                execute(self.connection, "set memory_limit = ?", f"{self._memory_bytes}B")

    def close(self) -> None:
        """Close the connection and remove the folder."""
        self.connection.close()
        self._remove()


def stored_columns(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the columns of a derived table as they are stored, for a query."""
    rows = fetch(connection, f'describe "{name}"').to_pylist()
    return ", ".join(
        "_key::int as key_id"
        if row["column_name"] == "_key"
        # Parquet has no integers of 128 bits, which DuckDB's sums have.
        else f'"{row["column_name"]}"::bigint as "{row["column_name"]}"'
        if row["column_type"] == "HUGEINT"
        else f'"{row["column_name"]}"'
        for row in rows
    )


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
