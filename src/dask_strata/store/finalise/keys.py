"""Collect all keys of a run, sort them, and look up the id of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.schema import RECORDED
from dask_strata.store.interruptible import hide_progress, interruptible
from dask_strata.store.key_texts import KEYS_SCHEMA, key_columns

#: Memory in which keys are collected and sorted, in bytes; the others are on disk meanwhile.
_MEMORY = "256MiB"

#: Keys that are read back at a time.
_ROWS = 1 << 17

_Ints = npt.NDArray[np.int64]


class SameHashError(Exception):
    """Two keys of the run have the same hash: hash all keys with another salt."""


class DistinctKeys:
    """The distinct keys in a column of some rows.

    Parameters
    ----------
    rows : pyarrow.Table
        Rows with dictionary-encoded texts and types of keys.
    column : str
        Name of the column.

    Attributes
    ----------
    texts, types : pyarrow.Array
        Text and type of each distinct key; the type may be null.
    index : numpy.ndarray
        Index of each row's key among them; -1 for null.
    """

    def __init__(self, rows: pa.Table, column: str) -> None:
        text, texts = _codes(rows[column])
        kind, types = _codes(rows[f"{column}_type"])
        width = len(types) + 1
        pairs = text * width + kind + 1
        pairs[text < 0] = -1
        used = np.zeros(len(texts) * width + 1, bool)
        used[pairs] = True
        used[-1] = False  # that of null
        found = np.flatnonzero(used)
        place = np.cumsum(used) - 1
        place[-1] = -1
        self.texts: pa.Array = texts.take(pa.array(found // width))
        known = pa.array(found % width - 1, mask=found % width == 0)
        self.types: pa.Array = types.take(known)
        self.index: _Ints = place[pairs]

    def hashes(self, salt: int) -> _Ints:
        """Return the hash of each distinct key."""
        return hashes_of(self.texts.to_pylist(), self.types.to_pylist(), salt)


def _codes(column: pa.ChunkedArray) -> tuple[_Ints, pa.Array]:
    """Return the index of each row's value, -1 for null, and the values."""
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.array(codes), array.dictionary


class KeyCollector:
    """Collects the keys of a run, on disk where they exceed the memory.

    Parameters
    ----------
    folder : Path
        Folder for temporary files.
    salt : int, optional
        Salt of the hashes of keys.
    """

    def __init__(self, folder: Path, salt: int = 0) -> None:
        self._salt = salt
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "temp_directory": str(folder / "duckdb"),
                "memory_limit": _MEMORY,
                "threads": 2,
            },
        )
        hide_progress(self._connection)
        self._execute("create table found (key varchar, key_type varchar)")

    def _execute(self, statement: str) -> None:
        interruptible(self._connection, lambda: self._connection.execute(statement))

    def add(self, name: str, rows: pa.Table) -> pa.Table:
        """Add the keys in some rows of a recorded table; return the rows as `with_hashes` does."""
        keys = {column: DistinctKeys(rows, column) for column in key_columns(RECORDED[name])}
        for each in keys.values():
            if len(each.texts):
                found = pa.table({"key": each.texts, "key_type": each.types})
                self._connection.register("added", found)
                self._execute("insert into found select key, key_type from added")
                self._connection.unregister("added")
        return _with_hashes(rows, keys, self._salt)

    def with_hashes(self, name: str, rows: pa.Table) -> pa.Table:
        """Return rows of a recorded table with hashes in place of texts and types of keys."""
        keys = {column: DistinctKeys(rows, column) for column in key_columns(RECORDED[name])}
        return _with_hashes(rows, keys, self._salt)

    def write(self, path: Path) -> KeyIds:
        """Write the table of keys, and return the ids.

        Raises
        ------
        SameHashError
            Two keys have the same hash.
        """
        hashes = [np.empty(0, np.int64)]
        with pq.ParquetWriter(
            path,
            KEYS_SCHEMA,
            compression="zstd",
            compression_level=9,
            version="2.6",
            use_dictionary=["key_type"],
            column_encoding={"key_id": "DELTA_BINARY_PACKED", "key": "DELTA_BYTE_ARRAY"},
        ) as writer:
            start = 0
            for batch in self._sorted():
                ids = np.arange(start, start + len(batch), dtype=np.int32)
                kinds = (
                    batch["key_type"].dictionary_encode().cast(KEYS_SCHEMA.field("key_type").type)
                )
                rows = pa.Table.from_arrays(
                    [pa.array(ids), batch["key"], kinds], schema=KEYS_SCHEMA
                )
                writer.write_table(rows)
                texts, types = batch["key"].to_pylist(), batch["key_type"].to_pylist()
                hashes.append(hashes_of(texts, types, self._salt))
                start += len(batch)
        self._connection.close()
        return _ids(np.concatenate(hashes))

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        query = "select distinct key, key_type from found order by key, key_type nulls first"
        yield from self._connection.sql(query).to_arrow_reader(_ROWS)


def _with_hashes(rows: pa.Table, keys: Mapping[str, DistinctKeys], salt: int) -> pa.Table:
    for column, each in keys.items():
        index = pa.array(each.index.astype(np.int32), mask=each.index < 0)
        hashes = pa.DictionaryArray.from_arrays(index, pa.array(each.hashes(salt)))
        place = rows.schema.get_field_index(column)
        rows = rows.set_column(place, column, hashes).drop_columns([f"{column}_type"])
    return rows


def _ids(hashes: _Ints) -> KeyIds:
    """Return the ids by the hashes of the keys in their order."""
    order = np.argsort(hashes).astype(np.int32)
    hashes = hashes[order]
    if (hashes[1:] == hashes[:-1]).any():
        raise SameHashError
    return KeyIds(hashes, order)


def hashes_of(texts: Sequence[str], types: Sequence[str | None], salt: int) -> _Ints:
    """Return a hash of each key, of 64 bits: Python's, which nobody can predict."""
    if set(types) == {"str"} and not salt:
        return np.fromiter(map(hash, texts), np.int64, len(texts))
    found = (
        hash(text) if kind == "str" and not salt else hash((text, kind, salt))
        for text, kind in zip(texts, types, strict=True)
    )
    return np.fromiter(found, np.int64, len(texts))


class KeyIds:
    """The ids of the keys of a run.

    Parameters
    ----------
    hashes : numpy.ndarray
        Hash of each key, sorted.
    ids : numpy.ndarray
        Their ids.
    """

    def __init__(self, hashes: _Ints, ids: npt.NDArray[np.int32]) -> None:
        self._hashes, self._ids = hashes, ids

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, rows: pa.Table, column: str) -> pa.Array:
        """Return the id of each row's key.

        Parameters
        ----------
        rows : pyarrow.Table
            Rows with hashes of keys that were collected.
        column : str
            Name of the column.
        """
        index, distinct = _codes(rows[column])
        hashes = distinct.to_numpy()
        places = np.searchsorted(self._hashes, hashes)
        known = places < len(self._hashes)
        if not known.all() or (self._hashes[places] != hashes).any():
            raise ValueError(f"{column} has keys that were not there at the first reading")
        ids = np.append(self._ids[places], np.int32(-1))
        return pa.array(ids[index], mask=index < 0)
