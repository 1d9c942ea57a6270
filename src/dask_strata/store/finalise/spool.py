"""Rows of a run on their way to Parquet: with ids of keys, divided into buckets, in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema, combine_chunks
from dask_strata.store.finalise.keys import KeyIds
from dask_strata.store.key_texts import ROW, has_buckets, id_name, key_columns, stored_schema

#: Keys of a bucket: the rows of so many tasks, and those derived from them, fit into memory.
KEYS_PER_BUCKET = 1 << 18

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Batches:
    """Batches of rows in files, by the name of their table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, name: str, rows: pa.Table) -> None:
        """Add rows after those before."""
        with (
            self._path(name).open("ab") as file,
            pa.ipc.new_stream(file, rows.schema, options=_OPTIONS) as writer,
        ):
            writer.write_table(rows)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in their order; none if there are no rows of this name."""
        if not self._path(name).exists():
            return
        with pa.OSFile(str(self._path(name))) as file:
            while file.tell() < file.size():
                with pa.ipc.open_stream(file) as reader:
                    yield from reader

    def remove(self, name: str) -> None:
        """Remove all rows."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.arrows"


class Spool:
    """The rows of a run, by table and bucket.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    ids : KeyIds
        Ids of the keys.
    keys_per_bucket : int, optional
        Keys of a bucket.

    Attributes
    ----------
    n_buckets : int
        Number of buckets.
    rows : dict of str to int
        Number of rows of each table so far.
    """

    def __init__(self, folder: Path, ids: KeyIds, keys_per_bucket: int = KEYS_PER_BUCKET) -> None:
        self._files, self._ids, self._size = Batches(folder), ids, keys_per_bucket
        self.n_buckets = max(1, -(-len(ids) // keys_per_bucket))
        self.rows: dict[str, int] = {}

    def add(self, name: str, rows: pa.Table) -> None:
        """Add some rows of a recorded table, after those before."""
        table = RECORDED[name]
        first = self.rows.get(name, 0)
        self.rows[name] = first + len(rows)
        stored = spooled_schema(name)
        ids = {id_name(key): self._ids.of(rows, key) for key in key_columns(table)}
        if has_buckets(table):
            ids[ROW] = pa.array(np.arange(first, first + len(rows), dtype=np.int64))
        columns = []
        for field in stored:
            column = ids.get(field.name)
            columns.append(rows[field.name].cast(field.type) if column is None else column)
        made = pa.Table.from_arrays(columns, schema=stored)
        if not has_buckets(table) or self.n_buckets == 1:
            self._files.append(f"{name}-0", made)
            return
        buckets = made["key_id"].fill_null(0).to_numpy() // self._size
        order = np.argsort(buckets.astype(np.uint16), kind="stable")
        sorted_rows = made.take(pa.array(order))
        counts = np.bincount(buckets, minlength=self.n_buckets)
        start = 0
        for bucket, count in enumerate(counts.tolist()):
            if count:
                part = with_own_texts(sorted_rows.slice(start, count))
                self._files.append(f"{name}-{bucket}", part)
            start += count

    def batches(self, name: str, bucket: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table in a bucket, in their order."""
        return self._files.batches(f"{name}-{bucket}")

    def buckets_of(self, name: str) -> list[int]:
        """Return the buckets in which a table has files; the first also without rows."""
        if not has_buckets(RECORDED[name]):
            return [0]
        return list(range(self.n_buckets))

    def remove(self, name: str, bucket: int) -> None:
        """Remove the rows of a table in a bucket."""
        self._files.remove(f"{name}-{bucket}")


def spooled_schema(name: str) -> pa.Schema:
    """Return the schema of a table's rows in the spool, which is that of its Parquet."""
    schema = stored_schema(RECORDED[name], arrow_schema(RECORDED[name]))
    if has_buckets(RECORDED[name]):
        schema = schema.append(pa.field(ROW, pa.int64()))
    return schema


def with_own_texts(rows: pa.Table) -> pa.Table:
    """Return rows whose dictionaries have one chunk, and only the texts of these rows."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(i, field, _own_texts(rows[i]))
    return rows


def _own_texts(column: pa.ChunkedArray) -> pa.DictionaryArray:
    array = combine_chunks(column)
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    texts = array.dictionary
    codes = array.indices.fill_null(-1).to_numpy()
    used = np.zeros(len(texts) + 1, np.bool_)
    used[codes] = True  # -1 is the last one
    if used[:-1].all():
        return array
    place = (used.cumsum() - 1).astype(np.int32)
    indices = pa.array(place[codes], mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, texts.filter(pa.array(used[:-1])))
