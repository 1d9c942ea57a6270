"""All tables of a run as a DuckDB database."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import ClassVar

import duckdb
import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.tabular.description import EXPORT, columns, facts_table
from dask_strata.export.tabular.reading import TablesInParts
from dask_strata.run import Run
from dask_strata.schema import TABLES
from dask_strata.store.interruptible import hide_progress, interruptible

#: Memory of the database while it is written; the run's own tables are read by another one.
_MEMORY = "128MiB"

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
        config = {"memory_limit": _MEMORY, "threads": 2, "temp_directory": f"{path}.tmp"}
        try:
            with closing(duckdb.connect(str(path), config=config)) as database:
                hide_progress(database)
                _write(database, run, job)
        except duckdb.Error as error:
            raise StrataError(
                f"The database cannot be written: {str(error).splitlines()[0]}.",
                hint="Check permissions and free space. The run is unchanged.",
            ) from error


def _write(database: duckdb.DuckDBPyConnection, run: Run, job: Job) -> None:
    for name, schema, batches in TablesInParts(run, job):
        _create(database, name)
        plain = _without_zone(schema)
        database.execute("begin")
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(plain)
            interruptible(database, partial(_insert, database, name, rows))
        database.execute("commit")
    facts = facts_table(run, job, {"times_in_duckdb": "timestamp_ns, in UTC"})
    database.execute(f'create table "{EXPORT}" (name varchar, value varchar)')
    _insert(database, EXPORT, facts)


def _create(database: duckdb.DuckDBPyConnection, name: str) -> None:
    found = columns(name)
    types = ", ".join(f'"{c["name"]}" {_TYPES.get(c["kind"], "varchar")}' for c in found)
    database.execute(f'create table "{name}" ({types})')
    database.execute(f'comment on table "{name}" is {_quoted(TABLES[name].row)}')
    for each in found:
        unit = "UTC" if each["kind"] == "time" else each["unit"]
        text = f"{each['meaning']} [{unit}]" if unit else each["meaning"]
        database.execute(f'comment on column "{name}"."{each["name"]}" is {_quoted(text)}')


def _insert(database: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    database.register("_rows", rows)
    database.execute(f'insert into "{name}" select * from _rows')  # noqa: S608  a table
    database.unregister("_rows")


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
