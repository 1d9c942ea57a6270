"""All tables of a run in parts, with the texts of keys, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.export.exporter import Job
from dask_strata.run import Run
from dask_strata.schema import RECORDED, TABLES, Table
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.key_texts import key_columns

#: Keys from which their texts are looked up here: DuckDB would join them once for each column.
_MANY_KEYS = 1 << 16


def export_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of an exported table: plain texts, and metadata of each column.

    >>> str(export_schema(TABLES["losses"]).field("what").type)
    'string'
    """
    schema = arrow_schema(table)
    fields = [
        f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


class TablesInParts:
    """Reads the tables of a run, one after the other, each in parts.

    Parameters
    ----------
    run : Run
        The run.
    job : Job
        The export, which gets the progress and the counts of tables and rows.
    """

    def __init__(self, run: Run, job: Job) -> None:
        self._run, self._job = run, job
        self._done = 0
        #: Number of rows of each table that was read.
        self.rows: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[str, pa.Schema, Iterator[pa.RecordBatch]]]:
        """Yield each table: its name, its schema, and its rows in parts."""
        for name, table in TABLES.items():
            schema = export_schema(table)
            yield name, schema, self._counted(name, self._batches(table, schema))
        self._job.counts["tables"] = len(self.rows)
        self._job.counts["rows"] = self._done

    def _counted(self, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.rows[name] = 0
        for batch in batches:
            if len(batch):
                yield batch
            self.rows[name] += len(batch)
            self._done += len(batch)
            self._job.progress(self._done)

    def _batches(self, table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        keys = key_columns(table) if table.name in RECORDED else []
        if not keys or self._keys is None:
            columns = ", ".join(f'"{name}"' for name in schema.names)
            for batch in self._run.batches(f"select {columns} from {table.name}"):  # noqa: S608
                yield _in_schema({n: batch.column(n) for n in batch.schema.names}, schema)
            return
        texts, kinds = self._keys
        types = {f"{key}_type" for key in keys}
        ids = {name: f"_{name}" if name in keys else name for name in schema.names}
        columns = ", ".join(f'"{ids[name]}"' for name in schema.names if name not in types)
        for batch in self._run.batches(f"select {columns} from {table.name}"):  # noqa: S608
            found = {n: batch.column(n) for n in batch.schema.names}
            for key in keys:
                places = found.pop(f"_{key}")
                found |= {key: texts.take(places), f"{key}_type": kinds.take(places)}
            yield _in_schema(found, schema)

    @cached_property
    def _keys(self) -> tuple[pa.Array, pa.Array] | None:
        """Texts and types of all keys by their ids; None if they are few, or have other ids."""
        bounds = "select min(_key) as low, max(_key) as high, count(*) as n from _keys"
        (found,) = self._run.rows(bounds)
        if found["n"] < _MANY_KEYS or (found["low"], found["high"]) != (0, found["n"] - 1):
            return None
        texts, kinds = [], []
        at = 0
        for batch in self._run.batches("select _key, key, key_type from _keys"):
            ids = pa.array(np.arange(at, at + len(batch)))
            if not pc.all(pc.equal(batch["_key"], ids), min_count=0).as_py():
                return None
            texts.append(batch["key"].cast(pa.large_string()))
            kinds.append(batch["key_type"].cast(pa.string()).dictionary_encode())
            at += len(batch)
        found_kinds = pa.chunked_array(kinds).unify_dictionaries().combine_chunks()
        del kinds
        return pa.concat_arrays(texts), found_kinds


def _in_schema(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        columns[f.name] if columns[f.name].type == f.type else columns[f.name].cast(f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
