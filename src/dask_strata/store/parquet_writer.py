"""Write tables as small Parquet files that other tools can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Rows of a row group: questions about a span of time or a few keys skip whole groups.
ROWS_PER_GROUP = 1 << 17


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as a small Parquet file that other tools can read.

    Parameters
    ----------
    table : pyarrow.Table
        The rows.
    path : Path
        The file.
    """
    with pq.ParquetWriter(path, table.schema, **parquet_options(table.schema)) as writer:
        for group in _groups(table):
            writer.write_table(group)


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table in row groups, each with a dictionary of its own texts only.

    Otherwise each row group would contain the dictionary of the whole table.
    """
    for start in range(0, len(table), ROWS_PER_GROUP):
        group = table.slice(start, ROWS_PER_GROUP)
        for i, field in enumerate(group.schema):
            if pa.types.is_dictionary(field.type):
                texts = group[i].cast(field.type.value_type).combine_chunks()
                group = group.set_column(i, field, texts.dictionary_encode().cast(field.type))
        yield group


def parquet_options(schema: pa.Schema, level: int = 9) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetWriter` for a table.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of the table.
    level : int, optional
        Compression level of Zstandard.
    """
    plain = {f.name: f.type for f in schema if not pa.types.is_nested(f.type)}
    numbers = [n for n, t in plain.items() if pa.types.is_timestamp(t) or pa.types.is_integer(t)]
    return {
        "compression": "zstd",
        "compression_level": level,
        "version": "2.6",
        "use_dictionary": [n for n in plain if n not in numbers],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None,
        "store_schema": True,
        "write_statistics": True,
    }
