"""Writing a whole run, or more rows of one, as Parquet: what importers do.

Either is written in a hidden folder beside its place, and gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.compact import ROWS_A_GROUP, parquet_options
from dask_strata.store.index import INDEX, index_bytes
from dask_strata.store.manifest import (
    ADDITIONS,
    ASIDE,
    PARQUET,
    Manifest,
    new_run_id,
    run_folder_name,
)
from dask_strata.store.safe_files import is_folder, kind_of


class BulkTables:
    """Tables that are being written as Parquet.

    Parameters
    ----------
    folder : Path
        Folder that they are in until they are whole.
    home : Path
        Folder of their Parquet.
    hint : str
        What to do if that folder cannot be made.

    Raises
    ------
    StrataError
        The folder cannot be made.
    """

    def __init__(self, folder: Path, home: Path, hint: str) -> None:
        self.folder = folder
        self._home = home
        self._writers: dict[str, _Table] = {}
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise StrataError(
                f"{folder.parent} cannot be written: {error.strerror or error}.", hint=hint
            ) from error

    def write(self, name: str, rows: pa.Table) -> None:
        """Add rows to a table; a column that is left out is null."""
        if len(rows):
            if name not in self._writers:
                self._writers[name] = _Table(name, self._home / name)
            self._writers[name].write(rows)

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Add rows given as mappings; times are integer nanoseconds."""
        fields = [f for f in arrow_schema(RECORDED[name]) if any(f.name in row for row in rows)]
        self.write(
            name,
            pa.table(
                [
                    pa.array([row.get(f.name) for row in rows], _plain(f.type)).cast(f.type)
                    for f in fields
                ],
                names=[f.name for f in fields],
            ),
        )

    def files(self, *names: str) -> list[str]:
        """Return the Parquet of tables that have rows, which get no more."""
        found = []
        for name in names:
            if name in self._writers:
                self._writers[name].close()
                found.append(str(self._writers[name].path))
        return found

    def close(self) -> None:
        """Write what is still waiting, and the index of the tables. Raises OSError."""
        rows = {name: writer.close() for name, writer in self._writers.items()}
        self._home.mkdir(exist_ok=True)
        (self._home / INDEX).write_bytes(index_bytes(rows))


class BulkRun(BulkTables):
    """A run that is being written.

    Parameters
    ----------
    runs : Path
        Folder that it is to appear in.

    Raises
    ------
    StrataError
        The folder cannot be written.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._made_runs = not runs.exists()
        folder = runs / f".import-{secrets.token_hex(4)}"
        super().__init__(folder, folder / PARQUET, "Give another folder with -o RUNS.")

    def aside(self, name: str, data: bytes) -> None:
        """Add bytes to the file of that name of what was set aside."""
        path = self.folder / ASIDE / name
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def finish(self, manifest: Manifest) -> Path:
        """Give the run its name and return its folder. Raises OSError."""
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        self.close()
        manifest.write(self.folder)
        target = self._runs / run_folder_name(manifest.name, manifest.run, manifest.created_ns)
        self.folder.rename(target)
        return target

    def discard(self) -> None:
        """Leave nothing behind, not even the folder for runs if it was made for this one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._made_runs:
            with contextlib.suppress(OSError):
                self._runs.rmdir()


class Addition(BulkTables):
    """Rows that are being added to a run that is there already, whatever form it has.

    They are written in a hidden folder, which gets its name among the run's additions when they
    are whole: nothing that the run has is touched, and half an addition is none.

    Parameters
    ----------
    run : Path
        The run's folder.

    Raises
    ------
    StrataError
        The folder cannot be written.
    """

    def __init__(self, run: Path) -> None:
        self.name = new_run_id()
        home = run / ADDITIONS
        if kind_of(home) is not None and not is_folder(home):
            raise StrataError(
                f"{home} is {kind_of(home)}: nothing is written there.",
                hint="Put a folder in its place.",
            )
        folder = run / f".addition-{self.name}"
        super().__init__(folder, folder, "Check who owns the run's folder, or add to a copy.")
        self._target = home / self.name

    def finish(self) -> None:
        """Make the rows part of the run. Raises OSError."""
        self.close()
        self._target.parent.mkdir(exist_ok=True)
        self.folder.rename(self._target)

    def discard(self) -> None:
        """Leave nothing behind of what was not finished."""
        shutil.rmtree(self.folder, ignore_errors=True)


class _Table:
    """The Parquet of one table: rows are collected until they are worth a row group."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "part-0.parquet"
        self._schema = arrow_schema(RECORDED[name])
        self._writer = pq.ParquetWriter(
            self.path, self._schema, **parquet_options(self._schema, level=3)
        )
        self._waiting: list[pa.Table] = []
        self._n = 0
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        self._waiting.append(
            pa.table(
                [
                    rows[f.name].cast(f.type)
                    if f.name in rows.column_names
                    else pa.nulls(len(rows), f.type)
                    for f in self._schema
                ],
                schema=self._schema,
            )
        )
        self._n += len(rows)
        if self._n >= ROWS_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(
                pa.concat_tables(self._waiting).unify_dictionaries(), row_group_size=self._n
            )
            self._rows += self._n
            self._waiting, self._n = [], 0

    def close(self) -> int:
        """Return how many rows there are."""
        self._flush()
        if self._writer.is_open:
            self._writer.close()
        return self._rows


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return kind.value_type if pa.types.is_dictionary(kind) else kind
