"""Writing imported rows as Parquet: a whole run, or an addition to an existing one.

Either is written in a hidden folder next to its final one, and renamed when it is complete.
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
from dask_strata.store.index import Index, index_bytes
from dask_strata.store.manifest import (
    ADDITIONS,
    ASIDE,
    INDEX,
    PARQUET,
    Manifest,
    new_run_id,
    run_folder_name,
)
from dask_strata.store.parquet_writer import ROWS_PER_GROUP, parquet_options
from dask_strata.store.safe_files import (
    checksum,
    create_run_folder,
    is_folder,
    kind_of,
    share_as,
)


class BulkTables:
    """Write tables as Parquet.

    Parameters
    ----------
    folder : Path
        Hidden folder, created here, that contains the tables until they are complete.
    home : Path
        Folder of the Parquet: `folder` or one inside of it.
    hint : str
        Advice to the user if the folder cannot be created.

    Raises
    ------
    StrataError
        The folder cannot be created.
    """

    def __init__(self, folder: Path, home: Path, hint: str) -> None:
        self.folder = folder
        self._home = home
        self._writers: dict[str, _Table] = {}
        try:
            create_run_folder(self.folder, "owner")
        except OSError as error:
            raise StrataError(
                f"{folder.parent} cannot be written: {error.strerror or error}.", hint=hint
            ) from error

    def write(self, name: str, rows: pa.Table) -> None:
        """Add rows to a table.

        Parameters
        ----------
        name : str
            Name of the table.
        rows : pyarrow.Table
            The rows; a missing column is null.
        """
        if len(rows):
            if name not in self._writers:
                self._writers[name] = _Table(name, self._home / name)
            self._writers[name].write(rows)

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Add rows to a table.

        Parameters
        ----------
        name : str
            Name of the table.
        rows : list of dict
            Values by column; times are integer nanoseconds since the epoch.
        """
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
        """Close some tables and return the paths of their files; skip tables without rows."""
        paths = []
        for name in names:
            if name in self._writers:
                self._writers[name].close()
                paths.append(str(self._writers[name].path))
        return paths

    def close(self, run_id: str) -> None:
        """Write the remaining rows, and the index.

        Parameters
        ----------
        run_id : str
            Id of the run that the tables belong to.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        rows = {name: writer.close() for name, writer in self._writers.items()}
        self._home.mkdir(exist_ok=True)
        checksums: dict[str, tuple[int, ...]] = {}
        for name, writer in self._writers.items():
            with writer.path.open("rb") as file:
                checksums[name] = (checksum(file),)
        (self._home / INDEX).write_bytes(
            index_bytes(Index(rows, checksums=checksums, run_id=run_id))
        )


class BulkRun(BulkTables):
    """Write a new run.

    Parameters
    ----------
    runs : Path
        Folder of runs that the new one is created in.

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

    def set_aside(self, name: str, data: bytes) -> None:
        """Keep bytes that could not be parsed: append them to a file in the folder `aside`.

        Parameters
        ----------
        name : str
            Name of the file.
        data : bytes
            The bytes, unchanged.
        """
        path = self.folder / ASIDE / name
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def finish(self, manifest: Manifest) -> Path:
        """Write the manifest, rename the folder and return its path.

        Raises
        ------
        OSError
            The folder cannot be written or renamed.
        """
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        self.close(manifest.run_id)
        manifest.write(self.folder)
        share_as(self.folder, *self.folder.rglob("*"))
        target = self._runs / run_folder_name(manifest.name, manifest.run_id, manifest.created_ns)
        self.folder.rename(target)
        return target

    def discard(self) -> None:
        """Delete everything written, and the folder of runs if it was created for this run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._made_runs:
            with contextlib.suppress(OSError):
                self._runs.rmdir()


class Addition(BulkTables):
    """Add rows to an existing run, whether it has segments or Parquet.

    The rows are written in a hidden folder, which is moved to the run's additions when they are
    complete. Existing files of the run are not changed, and an interrupted addition has no effect.

    Parameters
    ----------
    run : Path
        The run's folder.

    Attributes
    ----------
    name : str
        Name of the addition: a random id.

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
                f"{home} is {kind_of(home)}, not a folder.",
                hint="Remove it, then try again.",
            )
        folder = run / f".addition-{self.name}"
        super().__init__(
            folder, folder, "Check the permissions of the run's folder, or add to a copy of it."
        )
        self._target = home / self.name

    def finish(self) -> None:
        """Make the rows part of the run.

        Raises
        ------
        OSError
            The run's folder cannot be written.
        """
        self.close(Manifest.read(self._target.parents[1]).run_id)
        self._target.parent.mkdir(exist_ok=True)
        run = self._target.parents[1]
        share_as(run, self._target.parent, *self.folder.rglob("*"), self.folder)
        self.folder.rename(self._target)

    def discard(self) -> None:
        """Delete everything written."""
        shutil.rmtree(self.folder, ignore_errors=True)


class _Table:
    """Writer of one table: collects rows until they fill a row group."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "part-0.parquet"
        self._schema = arrow_schema(RECORDED[name])
        self._writer = pq.ParquetWriter(
            self.path, self._schema, **parquet_options(self._schema, level=3)
        )
        self._pending: list[pa.Table] = []
        self._n = 0
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        self._pending.append(
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
        if self._n >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(
                pa.concat_tables(self._pending).unify_dictionaries(), row_group_size=self._n
            )
            self._rows += self._n
            self._pending, self._n = [], 0

    def close(self) -> int:
        """Write the remaining rows and return the number of all rows."""
        self._flush()
        if self._writer.is_open:
            self._writer.close()
        return self._rows


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return kind.value_type if pa.types.is_dictionary(kind) else kind
