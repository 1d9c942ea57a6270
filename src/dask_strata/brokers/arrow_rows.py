"""Rows of tables as streams of Arrow IPC, and checks of those that anyone may have made."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dask_strata.brokers.json_rows import column_kinds
from dask_strata.errors import MessageError
from dask_strata.schema import Table
from dask_strata.store.arrow import arrow_schema, within_bounds
from dask_strata.store.segments.collect import ARROW_TYPES

#: Rows of one message.
_ROWS = 1 << 16

#: Messages of IPC in one stream: a schema, dictionaries, one batch.
_PARTS = 256

#: Begin of each part of a stream.
_MARK = 0xFFFFFFFF

#: Field numbers in Arrow's flatbuffers: `Message.header_type`, `Message.header`,
#: `DictionaryBatch.data`, `RecordBatch.compression`.
_HEADER_TYPE, _HEADER, _DICTIONARY_DATA, _COMPRESSION = 1, 2, 1, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def stream_bytes(
    table: Table, rows: pa.RecordBatch, seqs: pa.Array, metadata: Mapping[str, str]
) -> tuple[pa.RecordBatch, bytes]:
    """Return rows with the column ``seq``, without columns that are null, and their stream.

    Parameters
    ----------
    table : Table
        Definition of the table.
    rows : pyarrow.RecordBatch
        The rows.
    seqs : pyarrow.Array
        The number of each row.
    metadata : mapping of str to str
        Metadata of the stream's schema.
    """
    kinds = column_kinds(table)
    names = [name for name in rows.schema.names if rows[name].null_count < len(rows)]
    columns = [_own_type(ARROW_TYPES[kinds[name]], rows[name]) for name in names]
    schema = pa.schema(
        [*(pa.field(n, c.type) for n, c in zip(names, columns, strict=True)), ("seq", pa.int64())],
        metadata=dict(metadata),
    )
    batch = pa.RecordBatch.from_arrays([*columns, seqs], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return batch, sink.getvalue().to_pybytes()


def _own_type(target: pa.DataType, column: pa.Array) -> pa.Array:
    """Return a column in the schema's type; its dictionary has the values of its rows only."""
    if pa.types.is_dictionary(target):
        plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        return plain.dictionary_encode()
    return column if column.type == target else column.cast(target)


def parse_stream(data: bytes) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    """Return the one batch of a stream that anyone may have made, and the schema's metadata.

    Raises
    ------
    MessageError
        It is not a stream of one valid, uncompressed batch.
    """
    try:
        _refuse_compression(data)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            metadata = dict(reader.schema.metadata or {})
            batch = reader.read_next_batch()
            if len(batch) > _ROWS:
                raise MessageError(f"the message has {len(batch):,} rows; the limit is {_ROWS:,}")
            batch.validate(full=True)
            _require_end(reader)
    except (pa.ArrowException, StopIteration, OSError, ValueError, MemoryError) as error:
        raise MessageError(f"the message is no stream of Arrow: {str(error)[:200]}") from None
    except (IndexError, struct.error, NotImplementedError, RecursionError):
        raise MessageError("the message is no stream of Arrow") from None
    return batch, metadata


def _require_end(reader: Any) -> None:
    try:
        reader.read_next_batch()
    except StopIteration:
        return
    raise MessageError("the message has more than one batch")


def complete_types(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the known columns of a batch that anyone may have sent, after checking their types.

    Raises
    ------
    MessageError
        A column has a wrong type, or is there twice, or values are out of range.
    """
    names = batch.schema.names
    if len(set(names)) < len(names) or "seq" not in names:
        raise MessageError("the message has a column twice, or no column seq")
    types = {f.name: f.type for f in arrow_schema(table)}
    columns: dict[str, pa.Array] = {}
    for name, column in zip(names, batch.columns, strict=True):
        target = pa.int64() if name == "seq" else types.get(name)
        if target is None or name == "process":  # a column of a later version
            continue
        if pa.types.is_dictionary(target) and column.type == pa.string():
            column = column.dictionary_encode()  # noqa: PLW2901
        if column.type != target:
            raise MessageError(f"{table.name}.{name} is of the type {column.type}, not {target}")
        columns[name] = column
    known = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if within_bounds(table, pa.Table.from_batches([known]))[1]:
        raise MessageError(f"{table.name} has values that are out of range")
    return known


def _refuse_compression(data: bytes) -> None:
    """Refuse compressed batches: a small message could take any amount of memory.

    Arrow's reader checks the rest; this function follows only the offsets that lead to the field
    of compression, and raises `IndexError` or `struct.error` where they lead nowhere.
    """
    position = parts = 0
    while position + 8 <= len(data):
        mark, length = struct.unpack_from("<Ii", data, position)
        if mark != _MARK:
            raise MessageError("the message is no stream of Arrow")
        if length == 0:
            return
        parts += 1
        if length < 0 or parts > _PARTS:
            raise MessageError("the message is no stream of Arrow, or has too many parts")
        flat = data[position + 8 : position + 8 + length]
        body = _check_part(flat)
        position += 8 + length + body


def _check_part(flat: bytes) -> int:
    """Return the bytes of the body that follows the metadata of one part of a stream."""
    root = struct.unpack_from("<I", flat, 0)[0]
    kind_at, header_at, body_at = (_field(flat, root, n) for n in (_HEADER_TYPE, _HEADER, 3))
    kind = flat[kind_at] if kind_at else 0
    if kind in {_DICTIONARY_BATCH, _RECORD_BATCH} and header_at:
        table = _follow(flat, header_at)
        if kind == _DICTIONARY_BATCH:
            inner = _field(flat, table, _DICTIONARY_DATA)
            table = _follow(flat, inner) if inner else table
        if _field(flat, table, _COMPRESSION):
            raise MessageError("the message has compressed columns, which are not accepted")
    body = struct.unpack_from("<q", flat, body_at)[0] if body_at else 0
    if body < 0:
        raise MessageError("the message is no stream of Arrow")
    return int(body)


def _follow(flat: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", flat, at)[0])


def _field(flat: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table in a flatbuffer; 0 if the table lacks it."""
    vtable = table - struct.unpack_from("<i", flat, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    size = struct.unpack_from("<H", flat, vtable)[0]
    entry = 4 + 2 * number
    if entry + 2 > size:
        return 0
    offset = struct.unpack_from("<H", flat, vtable + entry)[0]
    return table + offset if offset else 0
