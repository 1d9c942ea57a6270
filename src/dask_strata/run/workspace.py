"""Where derived tables are made: in so much memory, then on disk, then in more memory."""

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
from dask_strata.run.duckdb_session import connect
from dask_strata.run.key_ids import KeyNumbers

#: What derived tables take of memory before they go to disk, where there is one to go to.
WORKING_BYTES = 512 << 20

_T = TypeVar("_T")


class Workspace:
    """A DuckDB for the tables of one run, with a folder of its own for what does not fit.

    The folder is made where temporary files are (``TMPDIR``), is readable by its owner only,
    and goes with this object. Without such a folder, memory is all there is.

    Parameters
    ----------
    memory_bytes : int, optional
        What is taken of memory at first.
    """

    def __init__(self, memory_bytes: int = WORKING_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._keys = KeyNumbers()
        self._remove: Callable[[], object]
        try:
            folder = tempfile.mkdtemp(prefix="dask-strata-")
        except OSError:
            self._remove = lambda: None
            self.connection = connect()
            return
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.connection = connect(f"{memory_bytes}B", Path(folder))
        # Others need the disk, too.
        most = shutil.disk_usage(folder).free // 2
        self.connection.execute("set max_temp_directory_size = ?", [f"{most}B"])

    def add(self, name: str, table: pa.Table) -> None:
        """Add a recorded table, with a number for each key; ``_keys`` has all keys so far."""
        self.connection.register(name, self._keys.add_to(table))
        self.connection.register("_keys", self._keys.keys())
        pa.default_memory_pool().release_unused()

    def do(self, action: Callable[[], _T]) -> _T:
        """Do something with the connection; where memory is too little even so, with more.

        Raises
        ------
        StrataError
            There is no more, or the disk is full.
        """
        while True:
            try:
                return action()
            except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
                if 2 * self._memory_bytes > _physical_bytes():
                    raise StrataError(
                        "There is too little memory, and too little room for temporary files, "
                        f"for this question about this run: {str(error).splitlines()[0]}",
                        hint="Set TMPDIR to a folder on a larger disk, or use a larger machine.",
                    ) from error
                self._memory_bytes *= 2
                self.connection.execute("set memory_limit = ?", [f"{self._memory_bytes}B"])

    def close(self) -> None:
        """Let go of all of it."""
        self.connection.close()
        self._remove()


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
