"""Write the rows of one table and bucket as Parquet, and read them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.store.finalise.spool import Spool, spooled_schema, with_own_texts
from dask_strata.store.parquet_writer import ROWS_PER_GROUP, parquet_options
from dask_strata.store.safe_files import checksum

#: Bytes of a bucket's rows that stay in memory until their Parquet is read back.
_KEPT_BYTES = 192 << 20


def part_name(bucket: int) -> str:
    """Return the name of the Parquet file of a bucket.

    >>> part_name(3)
    'part-3.parquet'
    """
    return f"part-{bucket}.parquet"


def write_part(spool: Spool, name: str, bucket: int, folder: Path) -> int:
    """Write a bucket of a recorded table as Parquet, read it back, and return its checksum.

    Parameters
    ----------
    spool : Spool
        The rows.
    name : str
        Name of the table.
    bucket : int
        Number of the bucket; one without rows has a file without rows.
    folder : Path
        The Parquet folder.

    Raises
    ------
    StrataError
        The file differs from the rows.
    """
    path = folder / name / part_name(bucket)
    path.parent.mkdir(exist_ok=True)
    schema = spooled_schema(name)
    kept: list[pa.Table] = []
    held = written = 0
    with pq.ParquetWriter(path, schema, **parquet_options(schema)) as writer:
        for group in _groups(spool, name, bucket, schema):
            writer.write_table(group)
            written += 1
            held += group.nbytes
            if held <= _KEPT_BYTES:
                kept.append(group)
    more: Iterable[pa.Table] = ()
    if written > len(kept):
        more = islice(_groups(spool, name, bucket, schema), len(kept), None)
    with pa.OSFile(str(path)) as file:
        back = pq.ParquetFile(file)
        n = 0
        for group in chain(kept, more):
            if n == back.num_row_groups or not _equal(back.read_row_group(n), group):
                raise mismatch(f"The Parquet of {name}")
            n += 1
        if n != back.num_row_groups:
            raise mismatch(f"The Parquet of {name}")
    with path.open("rb") as file:
        return checksum(file)


def _equal(found: pa.Table, rows: pa.Table) -> bool:
    """Return whether two tables have equal rows; their dictionaries may differ in their order."""
    if not found.schema.equals(rows.schema):
        return False
    return all(
        a.equals(b)
        or (pa.types.is_dictionary(a.type) and a.cast(pa.string()).equals(b.cast(pa.string())))
        for a, b in zip(found.columns, rows.columns, strict=True)
    )


def mismatch(file: str) -> StrataError:
    """Return the error that a file differs from the recorded rows."""
    return StrataError(
        f"{file} is not equal to the recorded rows; nothing was deleted.",
        hint="Please report this with the versions of dask-strata and pyarrow.",
    )


def _groups(spool: Spool, name: str, bucket: int, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows in row groups of the same size."""
    kept: list[pa.RecordBatch] = []
    n = 0
    for batch in spool.batches(name, bucket):
        start = 0
        while n + len(batch) - start >= ROWS_PER_GROUP:
            rest = ROWS_PER_GROUP - n
            yield with_own_texts(pa.Table.from_batches([*kept, batch.slice(start, rest)], schema))
            kept, n, start = [], 0, start + rest
        if len(batch) > start:
            kept.append(batch.slice(start))
            n += len(batch) - start
    if n:
        yield with_own_texts(pa.Table.from_batches(kept, schema))
