"""Columns: each kind of value becomes typed bytes, and comes back in one Arrow array."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_strata.schema import RECORDED
from dask_strata.store.arrow import Rows
from dask_strata.store.limits import COUNT, TIME_NS, Budget, LimitExceededError
from dask_strata.store.segments.assemble import ColumnAssembler
from dask_strata.store.segments.encode import (
    CONST,
    DELTA,
    DICT,
    FEW,
    INTERVALS,
    NUMBERS,
    PLAIN,
    SOME,
    SPARSE,
    STEPS,
    TEXTS,
    Sparse,
    encode_column,
    typed_column,
)
from dask_strata.store.segments.errors import FrameError
from dask_strata.store.segments.intervals import Intervals
from dask_strata.store.segments.values import check_column, values_of

_TIMES = st.integers(0, TIME_NS) | st.integers(1 << 60, (1 << 60) + 1000)
_SIZES = st.integers(-COUNT, COUNT) | st.integers(0, 300)
_INTS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200)
_SECONDS = st.floats(-COUNT, COUNT)
_FLOATS = st.floats()
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from("abc")
_INTERVAL = st.integers(0, TIME_NS - 1).flatmap(
    lambda start: st.tuples(
        st.none() | _TEXT,
        st.just(start),
        st.integers(-start, TIME_NS - 1 - start),
        st.none() | _TEXT,
    ).map(list)
)
USUAL = {
    "time": _TIMES,
    "bytes": _SIZES,
    "int": _INTS,
    "seconds": _SECONDS,
    "float": _FLOATS,
    "bool": st.booleans(),
    "text": _TEXT,
    "long": _TEXT,
    "key": _TEXT,
    "intervals": st.lists(_INTERVAL, max_size=3),
}
_ODD = (
    st.integers(-(1 << 80), 1 << 80)
    | st.floats()
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.lists(st.integers(0, 9), max_size=4)
    | st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2)
    | st.just(np.float64(2.5))
    | st.just(np.int32(7))
    | st.builds(object)
)


def written(kind: str, column: Any, n: int) -> Any:
    """Return a column as a reader gets it from a frame."""
    from dask_strata.store.segments.frames import _plain

    pack = msgpack.Packer(use_bin_type=True, unicode_errors="backslashreplace", default=_plain).pack
    encoded = msgpack.unpackb(pack(encode_column(kind, column, n)), strict_map_key=False)
    return check_column(encoded, n, Budget())


def joined(kind: str, *columns: Any) -> tuple[list[Any], int]:
    """Return the values of several written columns from Arrow, and the number of unusable ones."""
    assembler, rows = ColumnAssembler(kind), 0
    for n, column in columns:
        assembler.add(n, column, rows)
        rows += n
    array = assembler.take(rows)
    array.validate(full=True)
    if kind == "time":
        array = array.cast("int64")
    elif kind == "intervals":
        return [
            None if row is None else [_plain_interval(i) for i in row] for row in _lists(array)
        ], assembler.unusable
    return array.to_pylist(), assembler.unusable


def _lists(array: Any) -> list[Any]:
    flat, offsets = array.values, array.offsets.to_pylist()
    times = [flat.field(name).cast("int64").to_pylist() for name in ("start", "stop")]
    texts = [flat.field(name).to_pylist() for name in ("action", "source")]
    rows = list(zip(texts[0], *times, texts[1], strict=True))
    valid = array.is_valid().to_pylist()
    return [
        rows[a:b] if ok else None for a, b, ok in zip(offsets, offsets[1:], valid, strict=False)
    ]


def _plain_interval(row: tuple[Any, ...]) -> list[Any]:
    action, start, stop, source = row
    return [action, start, stop - start, source]


def same(one: Any, other: Any) -> bool:
    """Return whether two lists are equal, where NaN equals itself."""
    return all(
        a == b
        or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(one, other, strict=True)
    )


@st.composite
def columns_of(draw: st.DrawFn, kind: str) -> list[Any]:
    """Columns of one kind: short, long, without nulls, with nulls, of one value, or of few."""
    value = USUAL[kind]
    usual = st.lists(value, min_size=1, max_size=30)
    nulls = st.lists(st.none() | value, min_size=1, max_size=30)
    constant = st.builds(lambda v, n: [v] * n, st.none() | value, st.integers(1, 100))
    many = st.builds(
        lambda vs, n: (vs * n)[: 300 + n],
        st.lists(value, min_size=1, max_size=9),
        st.integers(2, 90),
    )
    return draw(usual | nulls | constant | many)


@pytest.mark.parametrize("kind", USUAL)
def test_columns_of_each_kind_come_back(kind: str) -> None:
    """Columns of several frames, with nulls or without, are one Arrow array of the same values."""

    @given(st.lists(columns_of(kind), min_size=1, max_size=4))
    @settings(deadline=None, max_examples=120)
    def comes_back(columns: list[list[Any]]) -> None:
        found = [(len(c), written(kind, c, len(c))) for c in columns]
        for (n, column), values in zip(found, columns, strict=True):
            assert same(values_of(column, n), values)
            inner = column and (column[3] if column[0] == SOME else column)
            few = len(values) - values.count(None) < FEW
            assert few or inner is None or inner[0] != PLAIN
        values, unusable = joined(kind, *found)
        assert same(values, [value for column in columns for value in column])
        assert unusable == 0

    comes_back()


@pytest.mark.parametrize("kind", USUAL)
def test_odd_values_cost_only_themselves(kind: str) -> None:
    """Values that cannot be converted are null, and counted; a list among texts is an error."""

    @given(st.lists(st.none() | USUAL[kind] | _ODD, min_size=1, max_size=12))
    @settings(deadline=None, max_examples=120)
    def is_null(column: list[Any]) -> None:
        n = len(column)
        if kind in ("text", "key") and any(isinstance(value, (list, dict)) for value in column):
            with pytest.raises(TypeError):
                encode_column(kind, column, n)
            return
        values, unusable = joined(kind, (n, written(kind, column, n)))
        assert len(values) == n
        assert unusable <= n

    is_null()


def test_a_wrong_value_leaves_the_others() -> None:
    """Beside a value of a wrong type, the others of its column are read."""
    column = written("int", [1, "x", None, 1 << 70, 5], 5)
    assert joined("int", (5, column)) == ([1, None, None, None, 5], 1)
    column = written("intervals", [[["a", 1, 2, None]], 7, None, [["b", -5, 1, "w"]]], 4)
    assert joined("intervals", (4, column)) == ([[["a", 1, 2, None]], None, None, None], 2)


def test_times_and_numbers_out_of_range_are_null() -> None:
    """They are counted, whatever their encoding."""
    times = [0, TIME_NS, TIME_NS + 1, -1, 1 << 62, (1 << 63) - 1]
    assert joined("time", (6, written("time", times, 6)))[1] == 3
    sizes = [COUNT, COUNT + 1, -COUNT - 1]
    assert joined("bytes", (3, written("bytes", sizes, 3))) == ([COUNT, None, None], 2)
    seconds = [1.5, float("nan"), float("inf")]
    assert joined("seconds", (3, written("seconds", seconds, 3))) == ([1.5, None, None], 2)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=10))
@example(["\udc80", "a"])
@example(["\ud800é"])
def test_texts_that_utf8_cannot_encode_are_escaped(texts: list[str]) -> None:
    """Single surrogates are escape sequences; all other texts are unchanged."""
    n = len(texts)
    expected = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    assert joined("text", (n, written("text", texts, n)))[0] == expected


@given(st.integers(1, 70), st.data())
def test_sparse_columns_come_back(n: int, data: st.DataObject) -> None:
    """A column with few values has null in all other rows."""
    values = data.draw(st.lists(st.none() | st.integers(0, 9), min_size=n, max_size=n))
    sparse = Sparse()
    for row, value in enumerate(values):
        sparse.put(row, value)
    assert joined("int", (n, written("int", sparse, n)))[0] == values


@pytest.mark.parametrize("sparse", [False, True], ids=["in all rows", "in some"])
@given(rows=st.lists(st.lists(_INTERVAL, max_size=3), min_size=1, max_size=100))
def test_intervals_by_field_are_written_as_lists_of_them(*, rows: list[Any], sparse: bool) -> None:
    """A source may collect intervals by field, in all rows or in some; the bytes are the same."""
    flat = itertools.chain.from_iterable(rows)
    fields = [list(field) for field in zip(*flat, strict=True)] or [[]] * 4
    by_field = Intervals([len(row) for row in rows], fields)
    assert [[list(each) for each in row] for row in by_field] == rows
    n = 2 * len(rows) if sparse else len(rows)
    columns: list[Any] = [rows, by_field]
    if sparse:
        columns = [Sparse(list(range(0, n, 2)), column) for column in columns]
    expected, found = (encode_column("intervals", column, n) for column in columns)
    assert found == expected


@pytest.mark.parametrize(
    "times",
    [
        [1 << 60] * FEW,
        list(range(1 << 60, (1 << 60) + FEW)),
        [(1 << 60) + i * ((1 << 32) - 1) for i in range(FEW)],
        [(1 << 60) + i * (1 << 32) for i in range(FEW)],
        [(1 << 60) - i for i in range(FEW)],
        [0, (1 << 62) - 1] * FEW,
        [-1, 5] * FEW,
    ],
    ids=["equal", "ascending", "longest steps", "longer steps", "descending", "leaps", "negative"],
)
def test_times_come_back_whatever_their_order(times: list[int]) -> None:
    """Times that do not ascend, or leap, are written in another form."""
    n = len(times)
    assert values_of(check_column(written("time", times, n), n, Budget()), n) == times


@pytest.mark.parametrize(
    ("kind", "values", "encoding"),
    [
        ("int", [3, 4, 5], NUMBERS),
        ("int", [3, 3, 3], CONST),
        ("time", [30, 40, 35], STEPS),
        ("bool", [True, False], NUMBERS),
        ("float", [1.5, 2.5], NUMBERS),
        ("key", ["a", "b", "a"], TEXTS),
        ("long", ["a", "b", None], SOME),
        ("intervals", [[["a", 1, 2, None]], []], INTERVALS),
    ],
)
def test_usual_values_are_typed(kind: Any, values: list[Any], encoding: int) -> None:
    """Usual values are written as bytes of a fixed width, as texts in one piece, or once."""
    encoded = encode_column(kind, values * FEW, len(values) * FEW)
    assert encoded is not None
    assert encoded[0] == encoding


def test_numbers_have_the_narrowest_width() -> None:
    """A byte for small numbers, eight for large ones."""
    sizes = [
        len(typed_column("int", [0, high], 2)[2]) for high in (255, 256, 65536, 1 << 32, -128, -129)
    ]
    assert sizes == [2, 4, 8, 16, 2, 4]


def test_long_and_large_columns_come_back() -> None:
    """A column of 100,000 rows, texts of megabytes, and more than 65,536 different texts."""
    n = 100_000
    texts = [f"key-{i % 70_000}" for i in range(n)]
    assert joined("key", (n, written("key", texts, n)))[0] == texts
    times = [TIME_NS >> 1 | i * i for i in range(n)]
    assert joined("time", (n, written("time", times, n)))[0] == times
    long = ["x" * 3_000_000, "é" * 100_000, ""]
    assert joined("long", (3, written("long", long, 3)))[0] == long


def test_encodings_of_format_1_are_read() -> None:
    """Differences, dictionaries and sparse columns of earlier segments."""
    columns = [
        ([DELTA, 5, [1, -2]], "time", [5, 6, 4]),
        ([DICT, ["a", None], b"\0\1\0"], "key", ["a", None, "a"]),
        ([SPARSE, [1], ["x"]], "text", [None, "x", None]),
        ([PLAIN, [[["a", 1, 2, "w"]], None, []]], "intervals", [[["a", 1, 2, "w"]], None, []]),
        ([CONST, 7], "int", [7, 7, 7]),
    ]
    for encoded, kind, values in columns:
        assert joined(kind, (3, check_column(encoded, 3, Budget()))) == (values, 0)


def test_texts_beyond_the_limit_are_refused_on_both_sides() -> None:
    """The recorder then writes fewer rows; a reader allocates nothing for such a column."""
    n, text = 1 << 12, "x" * (1 << 20)
    for column in (text, [text] * n, [text] * (n - 1) + ["y"]):
        with pytest.raises(ValueError, match="bytes of texts"):
            encode_column("long", column, n)
    sizes = struct.pack("<2I", 1 << 20, 1)
    typed = [TEXTS, text.encode() + b"y", [6, sizes], bytes(n)]
    for encoded in ([CONST, text], [DICT, [text, "y"], bytes(n)], typed):
        with pytest.raises(LimitExceededError):
            check_column(encoded, n, Budget(1 << 50))


@given(
    st.recursive(
        st.none() | st.integers(-3, 300) | st.binary(max_size=9) | st.text(max_size=3),
        lambda c: st.lists(c, max_size=7),
        max_leaves=20,
    ),
    st.integers(0, 12),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=300)
def test_an_odd_column_is_an_error_or_read_as_any_kind(rest: Any, encoding: int, n: int) -> None:
    """Content that no recorder writes is refused when it is checked, and never later."""
    encoded = [encoding, *rest] if isinstance(rest, list) else [encoding, rest]
    try:
        column = check_column(encoded, n, Budget())
    except (FrameError, TypeError, ValueError, IndexError, KeyError, OverflowError, AttributeError):
        return
    assert len(values_of(column, n)) == n
    for kind in USUAL:
        assert len(joined(kind, (n, column))[0]) == n


def test_short_columns_between_long_ones_keep_their_rows() -> None:
    """Values of a few rows are encoded later than the others, and come back in their rows."""
    for kind, few, many in (
        ("int", [5, 300], list(range(FEW))),
        ("float", [0.5, 2.5], [i / 4 for i in range(FEW)]),
        ("bool", [True, False], [True, False] * FEW),
        ("text", ["b", "a"], ["a", "b", "c"] * FEW),
        ("int", ["x", 1], list(range(FEW))),
    ):
        columns = [many, few, many, [None, *many], few]
        found = [(len(c), written(kind, c, len(c))) for c in columns]
        usable = type(many[0])
        expected = [v if type(v) is usable else None for column in columns for v in column]
        assert joined(kind, *found) == (expected, expected.count(None) - 1)


def test_a_dictionary_has_each_text_once() -> None:
    """Frames have dictionaries of their own, and the column of a batch has one."""
    column = written("text", ["a", "b"] * FEW, 2 * FEW)
    assembler = ColumnAssembler("text")
    for i in range(3):
        assembler.add(2 * FEW, column, i * 2 * FEW)
    assert assembler.take(6 * FEW).dictionary.to_pylist() == ["a", "b"]


def test_a_position_beyond_the_texts_is_refused() -> None:
    """Whether positions are bytes, wider numbers or many."""
    for n in (3, 1000):
        for distinct in (2, 300):
            texts = bytes(range(1, 101)) * 3
            sizes = b"\1" * distinct
            for wrong in (distinct - 1, distinct):
                packed = struct.pack(f"<{n}H", *[0] * (n - 1), wrong)
                positions = [5, packed] if distinct > 255 else packed[::2]
                encoded = [TEXTS, texts[:distinct], sizes, positions]
                if wrong < distinct <= n:
                    assert check_column(encoded, n, Budget()) is not None
                else:
                    with pytest.raises(FrameError):
                        check_column(encoded, n, Budget())


def test_a_frame_cannot_name_the_process_of_its_rows() -> None:
    """The reader knows it by the segment, and numbers the rows."""
    rows = Rows(RECORDED["job"])
    texts = {"name": (CONST, "x"), "process": (CONST, "other")}
    rows.extend(2, {**texts, "seq": (CONST, 0)}, "worker-1", 7)
    rows.extend(1, texts, "worker-2", 3)
    found = rows.table()
    assert found["process"].to_pylist() == ["worker-1", "worker-1", "worker-2"]
    events = Rows(RECORDED["worker_log"])
    events.extend(2, {"seq": (CONST, 0)}, "worker-1", 7)
    events.extend(1, {}, "worker-1", 20)
    assert events.table()["seq"].to_pylist() == [7, 8, 20]
