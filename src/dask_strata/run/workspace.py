"""Compute derived tables in limited memory, then on disk, then in more memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.run.duckdb_session import connect, execute
from dask_strata.run.key_ids import KEYS_TABLE, KeyIds
from dask_strata.run.key_prefix import KEY_PREFIX_MACROS
from dask_strata.store.interruptible import interruptible

#: Memory of derived tables, in bytes, before DuckDB spills them to disk.
WORKING_BYTES = 512 << 20

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
        connection = connect(f"{self._memory_bytes}B", Path(folder))
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

        def register() -> None:
            self.connection.register(name, with_ids)
            self.connection.register(KEYS_TABLE, keys)

        interruptible(self.connection, register)
        pa.default_memory_pool().release_unused()

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


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
