"""The segment format: what goes in comes out, whatever is cut or damaged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_strata.schema import RECORDED, TABLES, split_wire_key, wire_key
from dask_strata.store.segments.decode import decode, unpack
from dask_strata.store.segments.errors import FrameError
from dask_strata.store.segments.frames import (
    MAGIC,
    Batch,
    Damage,
    Encoder,
    Sparse,
    payloads,
)
from dask_strata.store.segments.intervals import Intervals
from dask_strata.store.segments.values import values_of

_INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_NEAR = st.integers(min_value=1_800_000_000_000_000_000, max_value=1_800_000_010_000_000_000)
_VALUES = {
    "time": _INT64 | _NEAR,
    "seconds": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False),
    "bytes": _INT64 | st.integers(0, 70_000),
    "int": _INT64 | st.integers(-300, 300),
    "bool": st.booleans(),
    "text": _TEXT,
    "long": _TEXT,
    "key": _TEXT.map(wire_key),
    "intervals": st.lists(
        st.tuples(_TEXT, _INT64, _INT64, st.none() | _TEXT).map(list), max_size=3
    ),
}


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Any rows of any recorded table."""
    table = draw(st.sampled_from(sorted(RECORDED)))
    n = draw(st.integers(1, 20))
    columns = {}
    for column in TABLES[table].columns:
        values = st.lists(st.none() | _VALUES[column.kind], min_size=n, max_size=n)
        constant = st.tuples(st.none() | _VALUES[column.kind], st.just(n)).map(
            lambda t: [t[0]] * t[1]
        )
        columns[column.name] = draw(values | constant)
    return Batch(table, n, columns)


def read(data: bytes) -> list[tuple[str, int, int, dict]]:
    """Decode a whole segment that must be intact."""
    layout, found = {}, []
    for payload in payloads(data):
        assert not isinstance(payload, Damage), payload
        body = unpack(payload)
        if isinstance(body, dict):
            layout = body["tables"]
        else:
            for table, seq, n, columns in decode(body, layout):
                values = {name: values_of(column, n) for name, column in columns.items()}
                found.append((table, seq, n, values))
    return found


def segment(*groups: list[Batch]) -> bytes:
    """Encode a segment of one frame a group."""
    encoder = Encoder("worker-1", {"role": "worker"})
    return encoder.header() + b"".join(encoder.frame(group) for group in groups)


@given(st.lists(st.lists(batches(), min_size=1, max_size=3), max_size=4))
@settings(deadline=None, max_examples=60)
def test_round_trip(groups: list[list[Batch]]) -> None:
    """Every value of every kind of column comes back, in order, with its sequence number."""
    found = read(segment(*groups))
    expected = [batch for group in groups for batch in group]
    assert [f[0] for f in found] == [b.table for b in expected]
    seq = 0
    for (_, first, n, columns), batch in zip(found, expected, strict=True):
        assert (first, n) == (seq, batch.n)
        seq += n
        for name, values in batch.columns.items():
            assert columns.get(name, [None] * n) == values


@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 60))
@settings(deadline=None, max_examples=150)
def test_any_damage_is_reported_and_the_rest_is_read(junk: bytes, at: int, cut: int) -> None:
    """Whatever is overwritten or cut out, the intact frames are read and the rest is reported."""
    groups = [[Batch("job", 2, {"name": ["a", "b"], "value": [str(i), None]})] for i in range(5)]
    whole = segment(*groups)
    at = min(at, len(whole))
    data = whole[:at] + junk + whole[at + cut :]
    seen = list(payloads(data))
    good = [p for p in seen if not isinstance(p, Damage)]
    originals = list(payloads(whole))
    assert all(p in originals for p in good)
    assert sum(len(p) + 12 for p in good) + sum(
        d.length for d in seen if isinstance(d, Damage)
    ) == len(data)
    if data != whole and len(good) < len(originals):
        assert any(isinstance(d, Damage) for d in seen) or len(data) < len(whole)


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 30])
def test_a_cut_tail_costs_only_the_last_frame(cut: int) -> None:
    """A segment that was cut in its last frame gives all frames before it."""
    data = segment(*[[Batch("job", 1, {"name": [f"n{i}"]})] for i in range(4)])
    *frames, last = payloads(data[:-cut])
    assert len(frames) == 4
    assert isinstance(last, Damage)
    assert "cut" in last.reason


@given(st.binary(max_size=2000))
@settings(deadline=None, max_examples=150)
def test_foreign_bytes_never_raise(data: bytes) -> None:
    """Bytes that are no segment at all come back as damage, not as an exception."""
    assert all(isinstance(p, (bytes, Damage)) for p in payloads(data))
    assert sum(1 for _ in payloads(MAGIC * 50 + data)) <= 50 + len(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda c: st.lists(c, max_size=4), max_leaves=20
    )
)
@settings(deadline=None, max_examples=150)
def test_a_frame_of_odd_content_is_a_frame_error(body: object) -> None:
    """Content that is not what a frame holds is refused with one kind of error."""
    layout = {"job": ["name", "value", "source"]}
    try:
        found = list(decode(body, layout))
    except FrameError:
        return
    assert all(table in layout for table, *_ in found)


def test_unpack_refuses_what_is_too_large_or_not_compressed() -> None:
    """A payload that claims a huge size, or is no Zstandard, is refused before it is unpacked."""
    import struct

    bomb = b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + struct.pack("<Q", 1 << 40) + b"\0" * 20
    for payload in (bomb, b"nonsense", b""):
        with pytest.raises(FrameError):
            unpack(payload)


def test_sparse_columns_keep_their_rows() -> None:
    """A column with few values comes back with null in all other rows."""
    sparse = Sparse()
    for row, value in enumerate([None, "x", None, None, "y"]):
        sparse.put(row, value)
    [(_, _, n, columns)] = read(segment([Batch("job", 5, {"name": ["n"] * 5, "value": sparse})]))
    assert n == 5
    assert columns["value"] == [None, "x", None, None, "y"]


def test_half_of_a_frame_has_its_own_intervals() -> None:
    """Intervals that are kept by field stay with their rows."""
    fields = [["a", "b", "c"], [1, 2, 3], [4, 5, 6], [None, "x", None]]
    sparse = Sparse([1, 2], Intervals([1, 2], fields))
    batch = Batch("scheduler_transitions", 4, {"key": list("abcd"), "startstops": sparse})
    read_halves = [columns["startstops"] for *_, columns in read(segment([*batch.halves()]))]
    assert read_halves == [
        [None, [["a", 1, 4, None]]],
        [[["b", 2, 5, "x"], ["c", 3, 6, None]], None],
    ]


def test_unknown_columns_are_refused_when_written() -> None:
    """A row with a column that the schema does not have is a mistake that is not written."""
    with pytest.raises(KeyError, match="nonsense"):
        Batch.of_rows("job", [{"nonsense": 1}])


_KEYS = st.recursive(
    st.text() | st.integers() | st.floats(allow_nan=False) | st.binary(),
    lambda c: st.lists(c, max_size=3).map(tuple),
    max_leaves=5,
)


@given(_KEYS, _KEYS)
@settings(max_examples=300)
def test_wire_keys_tell_all_keys_apart(one: object, other: object) -> None:
    """Two keys of Dask have the same wire text only if they are the same key."""
    same = (type(one), repr(one)) == (type(other), repr(other))
    assert (wire_key(one) == wire_key(other)) == same


@given(_KEYS)
def test_wire_keys_split_into_text_and_type(key: object) -> None:
    """The text that Dask shows and the key's type come back from the wire text."""
    assert split_wire_key(wire_key(key)) == (str(key), type(key).__name__)
