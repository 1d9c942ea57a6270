"""All tables of a run as an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import StrataError
from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.tabular.description import COLUMNS, EXPORT, columns, facts
from dask_strata.export.tabular.reading import TablesInParts
from dask_strata.export.tabular.texts import json_lists
from dask_strata.run import Run

#: Types of columns by the kind of the schema.
_TYPES = {"time": "INTEGER", "int": "INTEGER", "bytes": "INTEGER", "bool": "INTEGER",
          "seconds": "REAL", "float": "REAL"}  # fmt: skip

_TIMES = "integer nanoseconds since 1970-01-01 in UTC"

#: The database is written once, beside its place: an interrupted one is thrown away.
_SETTINGS = ("journal_mode = off", "synchronous = off", "cache_size = -16384")


class SqliteFile(Exporter):
    """All tables as an SQLite database."""

    name: ClassVar[str] = "sqlite"
    summary: ClassVar[str] = "all tables as an SQLite database"
    suffix: ClassVar[str] = ".sqlite"
    media_type: ClassVar[str | None] = "application/vnd.sqlite3"

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a database; see `Exporter.write`."""
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                _write(database, run, job)
        except sqlite3.Error as error:
            raise StrataError(
                f"The database cannot be written: {error}.",
                hint="Check permissions and free space. The run is unchanged.",
            ) from error


def _write(database: sqlite3.Connection, run: Run, job: Job) -> None:
    for setting in _SETTINGS:
        database.execute(f"pragma {setting}")
    database.execute("begin")
    described = []
    for name, _, batches in TablesInParts(run, job):
        found = columns(name)
        for each in found:
            unit = _TIMES if each["kind"] == "time" else each["unit"]
            described.append((name, each["name"], each["kind"], unit, each["meaning"]))
        types = ", ".join(f'"{c["name"]}" {_TYPES.get(c["kind"], "TEXT")}' for c in found)
        database.execute(f'create table "{name}" ({types})')
        for batch in batches:
            _insert(database, name, batch)
    database.execute(
        f'create table "{COLUMNS}" ("table" text, "column" text, kind text, unit text, '
        "meaning text)"
    )
    database.executemany(f'insert into "{COLUMNS}" values (?, ?, ?, ?, ?)', described)  # noqa: S608
    database.execute(f'create table "{EXPORT}" (name text, value text)')
    notes = facts(run, job, {"times_in_sqlite": _TIMES})
    database.executemany(f'insert into "{EXPORT}" values (?, ?)', notes)  # noqa: S608
    database.execute("commit")


def _insert(database: sqlite3.Connection, name: str, batch: pa.RecordBatch) -> None:
    """Insert rows; columns without any value are left out, as binding nulls takes time."""
    used = [n for n in batch.schema.names if batch[n].null_count < len(batch)]
    used = used or batch.schema.names[:1]
    into = ", ".join(f'"{each}"' for each in used)
    marks = ", ".join("?" * len(used))
    rows = zip(*(_values(batch[each]) for each in used), strict=True)
    database.executemany(f'insert into "{name}" ({into}) values ({marks})', rows)  # noqa: S608


def _values(column: pa.Array) -> Iterable[Any]:
    """Return the values of a column as objects of Python."""
    kind = column.type
    if pa.types.is_nested(kind):
        return json_lists(column).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_string(kind):
        return _texts(column)
    if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(object)
    values[column.is_null().to_numpy(zero_copy_only=False)] = None
    return values.tolist()  # type: ignore[no-any-return]


def _texts(column: pa.Array) -> list[str | None]:
    """Return texts; equal ones are one object."""
    encoded = column.dictionary_encode()
    objects = np.array([*encoded.dictionary.to_pylist(), None], object)
    return objects[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)].tolist()  # type: ignore[no-any-return]
