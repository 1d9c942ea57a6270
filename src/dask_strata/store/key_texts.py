"""Keys in finalised tables: integer ids there, texts and types in one table of keys.

A key has the id of its rank among all keys of the run, sorted by text and type. So keys with the
same prefix have neighbouring ids, and statistics of a Parquet file show whether it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.schema import Table

#: Name of the table of keys, which has an id, a text and a type in each row.
KEYS = "keys"

#: Column with the place of a row among those of the whole table, in finalised tables with keys.
ROW = "row_id"

_TYPE = "_type"
_ID = pa.int32()

KEYS_SCHEMA = pa.schema(
    [("key_id", _ID), ("key", pa.string()), ("key_type", pa.dictionary(pa.int32(), pa.string()))]
)


def id_name(column: str) -> str:
    """Return the name of the column with the ids of the keys in a column.

    >>> id_name("dependency")
    'dependency_id'
    """
    return f"{column}_id"


def key_columns(table: Table) -> list[str]:
    """Return the names of a table's columns that have keys.

    >>> from dask_strata.schema import RECORDED
    >>> key_columns(RECORDED["graph_edges"])
    ['key', 'dependency']
    """
    return [column.name for column in table.all_columns if column.kind == "key"]


def has_buckets(table: Table) -> bool:
    """Return whether the rows of a finalised table are divided by their keys."""
    return "key" in key_columns(table)


def stored_schema(table: Table, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table in finalised Parquet: ids in place of texts and types of keys.

    Parameters
    ----------
    table : Table
        The table.
    schema : pyarrow.Schema
        Its schema, or that of some of its columns; a key's type only with its text.
    """
    keys = key_columns(table)
    types = {f"{key}{_TYPE}" for key in keys}
    fields = [
        pa.field(id_name(f.name), _ID, metadata={"meaning": f"id of {f.name}, as in table {KEYS}"})
        if f.name in keys
        else f
        for f in schema
        if f.name not in types
    ]
    return pa.schema(fields, metadata=schema.metadata)


class KeyTexts:
    """Texts and types of the keys of a finalised run.

    Parameters
    ----------
    load : callable
        Returns the table of keys, sorted by id; called once, when it is needed.
    """

    def __init__(self, load: Callable[[], pa.Table]) -> None:
        self._load = load

    @cached_property
    def _columns(self) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
        keys = self._load()
        numbered = pc.equal(keys["key_id"], pa.array(np.arange(len(keys))))
        if not pc.all(numbered, min_count=0).as_py():  # a run may have no key
            raise ValueError(f"ids in the table of {KEYS} are not 0, 1, 2, …")
        texts = keys["key"].combine_chunks()
        # Keys of several types may have one text: Arrow's dictionaries have each text once.
        return texts.dictionary_encode(), _one_chunk(keys["key_type"])

    def __len__(self) -> int:
        return len(self._columns[0])

    def with_texts(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return a table with texts and types of keys in place of their ids.

        Parameters
        ----------
        table : pyarrow.Table
            A table with the `stored_schema` of the schema.
        schema : pyarrow.Schema
            The schema of the result.

        Raises
        ------
        ValueError
            An id is not in the table of keys.
        """
        columns = []
        for field in schema:
            if field.name in table.column_names:
                columns.append(table[field.name])
                continue
            is_type = field.name.endswith(_TYPE)
            ids = table[id_name(field.name.removesuffix(_TYPE))].combine_chunks()
            columns.append(pa.chunked_array([self._taken(ids, is_type=is_type)]).cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema)

    def _taken(self, ids: pa.Array, *, is_type: bool) -> pa.DictionaryArray:
        values = self._columns[is_type]
        if len(ids) > ids.null_count:
            ends = pc.min_max(ids)
            if ends["min"].as_py() < 0 or ends["max"].as_py() >= len(values):
                raise ValueError(f"ids of keys are not in the table of {KEYS}")
        # A table has only its own texts, in the order in which it has them.
        own = values.indices.take(ids).dictionary_encode()
        return pa.DictionaryArray.from_arrays(own.indices, values.dictionary.take(own.dictionary))


def _one_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return pa.array([], pa.string()).dictionary_encode()
    if column.num_chunks == 1:
        return column.chunk(0)
    indices = pa.concat_arrays([chunk.indices for chunk in column.chunks])
    return pa.DictionaryArray.from_arrays(indices, column.chunk(0).dictionary)
