"""All tables of a run as a DuckDB database."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.tabular.description import EXPORT, columns, facts_table
from dask_strata.export.tabular.reading import TablesInParts
from dask_strata.run import Run
from dask_strata.schema import TABLES
from dask_strata.store.interruptible import hide_progress, interruptible

#: Memory of the database at first, and at most, while it is written. The run's own tables are read
#: by another one.
_MEMORY, _MOST_MEMORY = 64 << 20, 1 << 30

_TYPES = {"time": "timestamp_ns", "int": "bigint", "bytes": "bigint", "bool": "boolean",
          "seconds": "double", "float": "double",
          "intervals": "struct(action varchar, start timestamp_ns, stop timestamp_ns, "
                       "source varchar)[]"}  # fmt: skip


class DuckdbFile(Exporter):
    """All tables as a DuckDB database."""

    name: ClassVar[str] = "duckdb"
    summary: ClassVar[str] = "all tables as a DuckDB database, with comments on each column"
    suffix: ClassVar[str] = ".duckdb"
    media_type: ClassVar[str | None] = "application/octet-stream"

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a database; see `Exporter.write`."""
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.mkdir()
        config: dict[str, Any] = {"memory_limit": f"{_MEMORY}B", "threads": 1}
        config["temp_directory"] = str(temporary / "duckdb")
        try:
            with closing(duckdb.connect(str(path), config=config)) as database:
                hide_progress(database)
                _write(database, run, job, temporary / "rows.parquet")
                # `close` writes the rows of the log into the file, too, but hides its errors.
                interruptible(database, partial(database.execute, "checkpoint"))
        except duckdb.Error as error:
            raise StrataError(
                f"The database cannot be written: {str(error).splitlines()[0]}.",
                hint="Check permissions and free space. The run is unchanged.",
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):  # the log of a database that is not whole
                path.with_name(f"{path.name}.wal").unlink()


def _write(database: duckdb.DuckDBPyConnection, run: Run, job: Job, temporary: Path) -> None:
    for name, schema, batches in TablesInParts(run, job):
        _create(database, name)
        # DuckDB keeps the rows of single inserts in memory, but not those of one from a file.
        with pq.ParquetWriter(temporary, _without_zone(schema), compression="lz4") as writer:
            n = 0
            for batch in batches:
                rows = pa.Table.from_batches([batch]).cast(writer.schema)
                writer.write_table(rows)
                n += len(batch)
        if n:
            _insert(database, name, temporary)
    facts = facts_table(run, job, {"times_in_duckdb": "timestamp_ns, in UTC"})
    database.execute(f'create table "{EXPORT}" (name varchar, value varchar)')
    database.register("_facts", facts)
    database.execute(f'insert into "{EXPORT}" from _facts')


def _insert(database: duckdb.DuckDBPyConnection, name: str, rows: Path) -> None:
    """Insert the rows of a Parquet file; double the memory until it suffices."""
    memory = _MEMORY
    query = f'insert into "{name}" from read_parquet(?)'
    while True:
        try:
            interruptible(database, partial(database.execute, query, [str(rows)]))
        except duckdb.OutOfMemoryException:
            memory *= 2
            if memory > _MOST_MEMORY:
                raise
            database.execute(f"set memory_limit = '{memory}B'")
        else:
            return


def _create(database: duckdb.DuckDBPyConnection, name: str) -> None:
    found = columns(name)
    types = ", ".join(f'"{c["name"]}" {_TYPES.get(c["kind"], "varchar")}' for c in found)
    database.execute(f'create table "{name}" ({types})')
    database.execute(f'comment on table "{name}" is {_quoted(TABLES[name].row)}')
    for each in found:
        unit = "UTC" if each["kind"] == "time" else each["unit"]
        text = f"{each['meaning']} [{unit}]" if unit else each["meaning"]
        database.execute(f'comment on column "{name}"."{each["name"]}" is {_quoted(text)}')


def _without_zone(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose times have no zone: DuckDB has nanoseconds without one only."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ns")
        if pa.types.is_list(kind):
            return pa.list_(pa.struct([(f.name, plain(f.type)) for f in kind.value_type]))
        return kind

    return pa.schema([pa.field(f.name, plain(f.type)) for f in schema])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
