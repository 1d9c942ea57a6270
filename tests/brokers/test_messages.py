"""Messages: every table and kind comes back equal, and hostile bytes are refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.brokers import message as module
from dask_strata.brokers.json_rows import json_text
from dask_strata.brokers.message import (
    ARROW_BYTES,
    Message,
    decode,
    encode,
    encode_facts,
    to_table,
)
from dask_strata.errors import MessageError
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema
from tests.support.streams import first_and_last, sample_rows, simple_messages


@pytest.mark.parametrize("form", ["json", "arrow"])
@pytest.mark.parametrize("name", RECORDED)
def test_rows_of_each_table_come_back_equal(name: str, form: Any) -> None:
    """In the types of the schema, with nulls, infinite numbers and the largest integers."""
    table = RECORDED[name]
    rows = sample_rows(table, list(range(100, 107)))
    sent = encode("0a1b2c3d", name, "worker-1", rows, first=100, form=form)
    received = [decode(m.data) for m in sent]
    assert received == sent
    assert sum(m.rows for m in received) == 7
    assert (received[0].first, received[-1].last) == (100, 106)
    back = to_table(name, received)
    assert back.schema == arrow_schema(table)
    assert back.to_pylist() == pa.Table.from_batches([rows]).to_pylist()


def test_nan_is_a_text_in_json() -> None:
    """JSON has no NaN: a message contains the text that Protobuf's JSON has for it."""
    name = next(n for n, t in RECORDED.items() if any(c.kind == "float" for c in t.columns))
    column = next(c.name for c in RECORDED[name].columns if c.kind == "float")
    rows = pa.record_batch({column: [float("nan")], "seq": [0]})
    for form in ("json", "arrow"):
        (sent,) = encode("r", name, "p", rows, first=0, form=form)  # type: ignore[arg-type]
        (value,) = to_table(name, [decode(sent.data)])[column].to_pylist()
        assert value != value, form  # noqa: PLR0124  NaN


def test_values_of_numpy_and_sets_become_json() -> None:
    """Facts of a run may contain them, and Mofka refuses other types."""
    facts = {
        "a": np.int64(3),
        "b": np.float64("nan"),
        "c": {2, 1},
        "d": np.bool_(1),
        "e": b"\xff",
    }
    assert json.loads(json_text(facts)) == {
        "a": 3,
        "b": "NaN",
        "c": [1, 2],
        "d": True,
        "e": "\\xff",
    }


def test_first_and_last_message() -> None:
    """They contain run.json, and the numbers of rows."""
    for message in first_and_last("0a1b2c3d"):
        assert decode(message.data) == message
    assert decode(message.data).content["rows"] == {"worker-1": {"tasks": 3}}


def test_arrow_messages_are_bounded() -> None:
    """Many rows, and large rows, are divided in order."""
    rows = pa.record_batch({"name": pa.array(["x" * 5000] * 900), "value": ["y" * 1000] * 900})
    sent = encode("r", "job", "p", rows, first=5, form="arrow")
    assert len(sent) > 1
    assert all(len(m.data) <= ARROW_BYTES for m in sent)
    assert (sent[0].first, sent[0].last) == (5, 5 + sent[0].rows - 1)
    assert [m.first for m in sent[1:]] == [m.last + 1 for m in sent[:-1] if m.last is not None]
    assert to_table("job", sent).num_rows == 900


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_row_that_is_too_large_says_what_was_cut(form: Any, monkeypatch: Any) -> None:
    """A row is never lost as a whole, and a reader can report the missing text."""
    monkeypatch.setattr(module, "MESSAGE_BYTES", 20_000)
    rows = pa.record_batch({"name": ["n"], "value": ["[" * 30_000], "seq": [3]})
    (sent,) = encode("r", "job", "p", rows, form=form)
    received = decode(sent.data)
    assert received == sent
    assert (received.cut, received.first, received.content) == (("value",), 3, {"name": "n"})


def _json(**changes: Any) -> bytes:
    facts = json.loads(simple_messages("r", "p", range(1))[0].data)
    facts.update(changes)
    return json.dumps(facts).encode()


HOSTILE = {
    "empty": b"",
    "text": b"hello",
    "not UTF-8": b'{"strata":1,"run":"\xff"}',
    "list": b"[1]",
    "nested": b"[" * 100_000,
    "nested objects": b'{"row":' * 100_000,
    "many lists": b"[" + b"[]," * 600_000 + b"[]" * 600_000,
    "NaN": _json(row={"name": float("nan")}),
    "bare NaN": b'{"strata":1,"run":"r","kind":"row","seq":NaN}',
    "long number": b'{"strata":' + b"9" * 10_000 + b"}",
    "later version": _json(strata=2),
    "version as text": _json(strata="1"),
    "version true": _json(strata=True),
    "no run": _json(run=None),
    "run is a path": _json(run="../x"),
    "unknown table": _json(table="nope"),
    "table is a list": _json(table=["job"]),
    "derived table": _json(table="attempts"),
    "process is a path": _json(process="a/b"),
    "no process": _json(process=None),
    "seq text": _json(seq="1"),
    "seq true": _json(seq=True),
    "seq negative": _json(seq=-1),
    "seq float": _json(seq=1.0),
    "seq huge": _json(seq=1 << 70),
    "row is a list": _json(row=[1]),
    "no row": _json(row=None),
    "unknown kind": _json(kind="drop"),
    "text is a number": _json(row={"name": 3}),
    "text is a list": _json(row={"name": ["a"]}),
    "surrogate": _json(row={"name": "\ud800"}),
    "cut is a text": _json(cut="name"),
    "cut is unknown": _json(cut=["nope"]),
    "run.json of another": _json(kind="run", row={"run": "x", "name": "n", "created_ns": 1}),
    "run.json without fields": _json(kind="run", row={"run": "r"}),
    "run.json with a wrong time": _json(
        kind="run", row={"run": "r", "name": "n", "created_ns": 1e99, "version": ""}
    ),
    "end without rows": _json(kind="end", row={"state": "x"}),
    "end with texts": _json(kind="end", row={"state": "x", "rows": {"p": {"job": "many"}}}),
    "end with lists": _json(kind="end", row={"state": "x", "rows": {"p": [1]}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_refused(name: str) -> None:
    """With one error for all kinds of it."""
    with pytest.raises(MessageError):
        decode(HOSTILE[name])


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("losses", {"count": 1.5}),
        ("losses", {"count": True}),
        ("losses", {"count": 1 << 63}),
        ("losses", {"time": -1}),
        ("losses", {"time": "2026-01-01"}),
        ("executions", {"cpu_seconds": 1e300}),
        ("executions", {"cpu_seconds": "NaN"}),
        ("scheduler_transitions", {"startstops": {}}),
        ("scheduler_transitions", {"startstops": [[1, 2]]}),
        ("scheduler_transitions", {"startstops": [{"start": "now"}]}),
        ("scheduler_transitions", {"key": ["x", 0]}),
    ],
)
def test_values_of_a_wrong_kind_are_refused(table: str, row: dict[str, Any]) -> None:
    """The name of the column is in the error."""
    with pytest.raises(MessageError, match=rf"{table}\.{next(iter(row))}"):
        decode(_json(table=table, row=row))


def test_1e999_is_no_number() -> None:
    """Python's parser makes infinity of it."""
    text = _json(table="executions", row={"cpu_seconds": 7}).replace(b": 7}", b": 1e999}")
    assert b"1e999" in text
    with pytest.raises(MessageError):
        decode(text)


def test_columns_of_later_versions_are_ignored() -> None:
    """So that an older reader reads the columns of its own version."""
    assert decode(_json(row={"name": "a", "later": [1]})).content == {"name": "a"}


def test_a_huge_message_is_refused_before_it_is_parsed(monkeypatch: Any) -> None:
    """By its size."""
    monkeypatch.setattr(module, "MESSAGE_BYTES", 1000)
    with pytest.raises(MessageError, match="limit"):
        decode(_json(row={"name": "x" * 1000}))


def _stream(batches: list[pa.RecordBatch], metadata: Any = None, **options: Any) -> bytes:
    default = {"strata": "1", "run": "r", "table": "job", "process": "p"}
    schema = batches[0].schema.with_metadata(default if metadata is None else metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"name": ["a", "b"], "seq": pa.array([1, 2]), **columns})


FOREIGN = {
    "no metadata": _stream([_batch()], {}),
    "other metadata": _stream([_batch()], {"strata": "x", "run": "r"}),
    "metadata of bytes": _stream([_batch()], {b"strata": b"1", b"run": b"\xff"}),
    "unknown table": _stream(
        [_batch()], {"strata": "1", "run": "r", "table": "nope", "process": "p"}
    ),
    "two batches": _stream([_batch(), _batch()]),
    "no seq": _stream([pa.record_batch({"name": ["a"]})]),
    "no rows": _stream([_batch().slice(0, 0)]),
    "null seq": _stream([_batch(seq=pa.array([1, None]))]),
    "seq of floats": _stream([_batch(seq=pa.array([1.0, 2.0]))]),
    "seq backwards": _stream([_batch(seq=pa.array([2, 1]))]),
    "seq twice": _stream([_batch(seq=pa.array([2, 2]))]),
    "negative seq": _stream([_batch(seq=pa.array([-2, 2]))]),
    "number in a text": _stream([_batch(name=pa.array([1, 2]))]),
    "list in a text": _stream([_batch(name=pa.array([[1], [2]]))]),
    "a column twice": _stream([pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["seq", "seq"])]),
    "compressed": _stream([_batch(name=pa.array(["x" * 1000] * 2))], compression="zstd"),
    "too many rows": _stream([pa.record_batch({"seq": pa.array(np.arange(70_000))})]),
    "cut": _stream([_batch()])[:-60],
    "begin only": b"\xff\xff\xff\xff",
    "a length without bytes": struct.pack("<Ii", 0xFFFFFFFF, 1 << 30),
    "a negative length": struct.pack("<Ii", 0xFFFFFFFF, -5) + bytes(100),
    "zeros": struct.pack("<Ii", 0xFFFFFFFF, 64) + bytes(200),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_arrow_is_refused(name: str) -> None:
    """With the same error."""
    with pytest.raises(MessageError):
        decode(FOREIGN[name])


def test_a_bomb_in_compressed_arrow_is_refused_unread() -> None:
    """A gigabyte of zeros takes some kilobytes compressed; nothing is allocated for it."""
    zeros = _batch(name=pa.array(["\0" * (64 << 20)] * 2))
    data = _stream([zeros], compression="zstd")
    assert len(data) < 100_000
    before = pa.total_allocated_bytes()
    with pytest.raises(MessageError, match="compressed"):
        decode(data)
    assert pa.total_allocated_bytes() - before < 1 << 20


ANY_ARROW = encode("r", "losses", "p", sample_rows(RECORDED["losses"], [1, 2, 3]), form="arrow")[0]
ANY_JSON = encode("r", "losses", "p", sample_rows(RECORDED["losses"], [1]))[0]


@given(st.data())
def test_damaged_messages_are_read_or_refused(data: st.DataObject) -> None:
    """Any bytes in place of others give a message or the one error, and no other exception."""
    damaged = bytearray(data.draw(st.sampled_from([ANY_ARROW.data, ANY_JSON.data])))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = decode(bytes(damaged))
    except MessageError:
        return
    assert isinstance(made, Message)
    if made.kind == "row":
        assert to_table(made.table or "", [made]).num_rows == made.rows


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    """Also those that begin like Arrow."""
    for damaged in (data, b"\xff\xff\xff\xff" + data):
        with pytest.raises(MessageError):
            decode(damaged)


def test_a_reader_of_facts_needs_no_more_than_json() -> None:
    """The documented fields, for readers in other languages."""
    (message,) = simple_messages("0a1b2c3d", "worker-1", range(7, 8), "queue")
    assert json.loads(message.data) == {
        "strata": 1,
        "run": "0a1b2c3d",
        "kind": "row",
        "table": "job",
        "process": "worker-1",
        "seq": 7,
        "row": {"name": "queue"},
    }
    assert json.loads(encode_facts("r", "end", {"state": "x", "rows": {}}).data)["process"] is None
