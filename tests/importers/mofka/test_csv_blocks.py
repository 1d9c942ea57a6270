"""Reading CSV files block by block: every line is in a row of the table or set aside."""

from __future__ import annotations

import csv
import io
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dask_strata.importers.mofka import csv_blocks
from dask_strata.importers.mofka.cells import Field
from dask_strata.importers.mofka.csv_blocks import Aside, Block, CsvFile
from tests.support.coupler_files import nanoseconds

FIELDS = (
    Field("key", "key", required=True),
    Field("text", "text"),
    Field("long", "long"),
    Field("int", "int"),
    Field("number", "number"),
    Field("time", "time", required=True),
)
NAMES = ["", *(field.name for field in FIELDS)]

ODD = ["NA", "null", "nan", "NaN", "None", "1", "1.0", "inf", "-", "'", '"', ",", "\n", "\r\n", "#"]
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
    | st.sampled_from(ODD)
    | st.text("ab,\"'\n\r \t", max_size=8)
)
TIMES = st.integers(0, 4 * 10**15).map(lambda us: us / 10**6)
VALUES = (
    TEXTS.filter(bool),
    TEXTS,
    TEXTS,
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.floats(),
)
ROWS = st.tuples(*VALUES, TIMES)
LATE_ROWS = st.tuples(*VALUES, st.integers(10**15, 4 * 10**15).map(lambda us: us / 10**6))


@pytest.fixture(params=[7, 64, 8 << 20], ids=lambda n: f"blocks of {n}")
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of few bytes, or of many."""
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", request.param)
    return request.param


relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def written(rows: Sequence[Sequence[Any]], end: str = "\n") -> bytes:
    """Return what csv.writer makes of rows, with an index column and a header."""
    table = [[number, *row] for number, row in enumerate(rows)]
    return dumped([NAMES, *table], end)


def dumped(table: Sequence[Sequence[Any]], end: str = "\n") -> bytes:
    """Return a table as csv.writer writes it; older ones forget to quote a lone CR."""
    file = io.StringIO(newline="")
    for row in table:
        quoting = csv.QUOTE_ALL if any("\r" in str(value) for value in row) else csv.QUOTE_MINIMAL
        writer = csv.writer(file, lineterminator=end, quoting=quoting)
        writer.writerow("" if value is None else value for value in row)
    return file.getvalue().encode()


def read(data: bytes, fields: Sequence[Field] = FIELDS) -> list[Block]:
    """Return the blocks of a file with these bytes."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(data)
        file.flush()
        return list(CsvFile(Path(file.name), fields).blocks())


def cells(blocks: list[Block]) -> list[tuple[Any, ...]]:
    """Return the values of all rows, times in nanoseconds, without their lines."""
    return [row[:-2] for row in with_lines(blocks)]


def with_lines(blocks: list[Block]) -> list[tuple[Any, ...]]:
    """Return the values of all rows, with line and whether the row is cut."""
    found: list[tuple[Any, ...]] = []
    for block in blocks:
        columns = [
            c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in block.table.columns
        ]
        found += zip(*(c.to_pylist() for c in columns), strict=True)
    return found


def aside(blocks: list[Block]) -> list[Aside]:
    """Return the rows of all blocks that were set aside."""
    return [row for block in blocks for row in block.aside]


def expected(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values that a written row is to come back as."""
    *others, time = row
    return (*(None if value == "" else value for value in others), nanoseconds(time))


def same(found: Any, wanted: Any) -> bool:
    """Tell whether rows are equal; one NaN is as good as another."""
    return repr(found) == repr(wanted)


def lines_of(rows: Sequence[Sequence[Any]], end: str) -> list[int]:
    """Return the line that each row begins at."""
    heights = [written([row], end).count(b"\n") - 1 for row in rows]
    return [2 + before for before in itertools.accumulate([0, *heights[:-1]])][: len(rows)]


@given(rows=st.lists(ROWS, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
@example(rows=[("a", "", "", None, None, 1.0), ("b", "x\ny", "", 1, 0.5, 2.0)], end="\n")
@relaxed
def test_any_table_comes_back(rows: list[Any], end: str, block_bytes: int) -> None:
    """What csv.writer wrote is read back equal, each row with its line, in blocks of any size."""
    blocks = read(written(rows, end))
    assert aside(blocks) == []
    assert same(cells(blocks), [expected(row) for row in rows])
    assert [row[-2:] for row in with_lines(blocks)] == [(n, False) for n in lines_of(rows, end)]


def without_end(text: bytes) -> bytes:
    """Return a file without its last end of line."""
    return text.removesuffix(b"\n").removesuffix(b"\r")


@given(rows=st.lists(LATE_ROWS, min_size=1, max_size=4))
@relaxed
def test_a_last_row_without_an_end_is_marked(rows: list[Any]) -> None:
    """A file without a last end of line has all rows; the last is marked, as it may lack digits."""
    blocks = read(without_end(written(rows)))
    assert aside(blocks) == []
    assert same(cells(blocks), [expected(row) for row in rows])
    assert [row[-1] for row in with_lines(blocks)] == [False] * (len(rows) - 1) + [True]


@given(rows=st.lists(ROWS, min_size=1, max_size=4), order=st.permutations(range(7)))
@relaxed
def test_columns_are_found_by_name(rows: list[Any], order: list[int]) -> None:
    """The order of columns does not matter."""
    table = [NAMES, *(["", *row[:-1], repr(row[-1])] for row in rows)]
    columns = [f.name for f in FIELDS]
    names = [NAMES[i] for i in order if NAMES[i]]
    blocks = read(dumped([[row[i] for i in order] for row in table]))
    assert aside(blocks) == []
    found = [[row[names.index(name)] for name in columns] for row in cells(blocks)]
    assert same([tuple(row) for row in found], [expected(row) for row in rows])


class _Slow(CsvFile):
    """A file that is always read row by row."""

    def _by_arrow(self, piece: bytes, line: int, n: int) -> None:
        return None


CELLS = TEXTS | st.sampled_from(
    [
        *("0", "-1", "1e3", "1.5E+2", " 1", "1 ", "+1", ".5", "5.", "0x1", "1_0", "٣", "1e400"),
        *("1e9999999", "-1e-9999999", "1713553298.1234567", "1713553298.12345678951", "1e9"),
        *("9223372036", "9223372036.5", "9223372036.854775807", "9223372036.854775808", "1e10"),
        *("-0.5", "-0", "9007199254740993", "9223372036854775807", "9223372036854775808", "8.0"),
        *("2024-04-19T19:01:38.5", "2024-04-19 19:01:38+02:00", "2024-04-19T19:01:38Z", "infinity"),
        *("+inf", "-Inf", "nan(1)", "sNaN", "1.0000000001", "0.0000000001", "00", "007", "1e-3"),
        *("99999999999999999999", "99999999999999999999999999999999999999999", "TRUE", "0,5"),
    ]
)
RAW = st.lists(CELLS, min_size=7, max_size=7)


@given(table=st.lists(RAW, min_size=1, max_size=3), end=st.sampled_from(["\n", "\r\n"]))
@example(table=[["0", "k", "", "", "", "", "9223372036.5"]], end="\n")
@example(table=[["0", "k", "", "", "1e9999999", "", "1"]], end="\n")
@example(table=[["0", "k", "", "", "9007199254740993", "", "1"]], end="\n")
@relaxed
def test_both_readers_agree(table: list[list[str]], end: str) -> None:
    """A block that Arrow reads at once gives the rows that are read one by one, and no others."""
    assert_readers_agree(dumped(table, end))


@given(st.text('ab1.",\n\r', max_size=60).map(lambda text: text.encode() + b"\n"))
@example(b'0,k,,,,,"1\n')
@example(b'0,k,,,,,1\r1,k,"\n",,,,1\n')
@example(b'0,a"b,"c"d,,,,1\n')
@example(b'0,a"b,c",,,,1\n')
@example(b'0,"a""b","",,,,1\n')
@example(b"0,k,,,,,1\n\n1,k,,,,,1\n")
@example(b"0,k,,,,,1\n,,,,,,\n")
@settings(max_examples=400)
def test_both_readers_agree_on_damage(data: bytes) -> None:
    """Quotes and ends of lines in odd places: Arrow and the row-by-row reader agree."""
    assert_readers_agree(data)
    assert_readers_agree(b"0,k,,," + data)
    assert_readers_agree(b"0,k,,,,,1\n" + data.replace(b"\n", b",,,,,1\n"))


def assert_readers_agree(data: bytes) -> None:
    """Assert that, if a block can be read at once, row by row finds the same and refuses none."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(",".join(NAMES).encode() + b"\n")
        file.flush()
        fast = CsvFile(Path(file.name), FIELDS)
        table = fast._by_arrow(data, 2, data.count(b"\n"))
        if table is not None:
            slow = _Slow(Path(file.name), FIELDS)._block(data, 2, data.count(b"\n"))
            assert slow.aside == []
            assert same(with_lines([Block(table, [])]), with_lines([slow]))


@pytest.mark.parametrize(
    "row",
    [
        b"0,\"('x', 0)\",,,,,1713553298.5\n",
        b"0,NA,null,nan,8.0,nan,1713553298.5\n",
        b"0,k,,,,,1713553298.5\r\n",
        b'0,k,,,,,"1713553298.5"\n',
        b"0,k,,,1e3,1e3,1.7135532985e9\n",
    ],
)
def test_usual_rows_are_read_at_once(row: bytes) -> None:
    """What pandas writes needs no second look: the fast way reads it."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(",".join(NAMES).encode() + b"\n")
        file.flush()
        assert CsvFile(Path(file.name), FIELDS)._by_arrow(row * 3, 2, 3) is not None


DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "nul", "quote", "utf8", "cr", "newline", "drop", "comma"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)
INSERTED = {
    "nul": b"\0",
    "quote": b'"',
    "utf8": b"\xc3\x28\xff",
    "cr": b"\r",
    "newline": b"\n",
    "comma": b",",
}


def harmed(data: bytes, damage: list[tuple[str, float, int]]) -> bytes:
    """Return bytes with things done to them."""
    for kind, where, byte in damage:
        i = int(where * (len(data) + 1))
        if kind in INSERTED:
            data = data[:i] + INSERTED[kind] + data[i:]
        elif kind == "flip":
            data = data[:i] + bytes([byte]) + data[i + 1 :]
        elif kind == "cut":
            data = data[:i]
        else:
            data = data[:i] + data[i + 5 :]
    return data


@given(rows=st.lists(ROWS, min_size=1, max_size=6), damage=DAMAGE)
@relaxed
def test_each_byte_of_a_damaged_file_is_in_a_row_or_set_aside(
    rows: list[Any], damage: list[Any], block_bytes: int
) -> None:
    """Nothing raises; each line is in one row, or in one that was set aside, or is empty."""
    header, _, body = written(rows).partition(b"\n")
    data = harmed(body, damage)
    blocks = read(header + b"\n" + data)
    assert b"".join(block.data for block in blocks) == data
    assert_accounted(data, blocks)
    for row in aside(blocks):
        assert row.reason


def assert_accounted(data: bytes, blocks: list[Block]) -> None:
    """Assert that each line is in exactly one row of the table, or in one row set aside."""
    lines = io.BytesIO(data).readlines()
    covered = [0] * len(lines)
    for row in aside(blocks):
        part = lines[row.line - 2 : row.line - 2 + row.lines]
        assert b"".join(part) == row.data
        for i in range(row.line - 2, row.line - 2 + row.lines):
            covered[i] += 1
    starts = [row[-2] - 2 for row in with_lines(blocks)]
    ends = sorted({*starts, *(row.line - 2 for row in aside(blocks)), len(lines)})
    for start in starts:
        # The lines from a row's first line to the next row's first line are one CSV row.
        part = b"".join(lines[start : ends[ends.index(start) + 1]])
        (_,) = filter(None, csv.reader(io.StringIO(part.decode("latin-1"), newline="")))
        for i in range(start, ends[ends.index(start) + 1]):
            covered[i] += 1
    for line, n in zip(lines, covered, strict=True):
        assert n == 1 or (n == 0 and not line.strip(b"\r\n")), (line, n)


@given(before=st.binary(max_size=40), n=st.integers(1, 30))
@example(before=b'"', n=3)
@example(before=b'0,"k,,,,,1713553298.5', n=3)
@relaxed
def test_rows_behind_damage_are_still_read(before: bytes, n: int, block_bytes: int) -> None:
    """Whatever one line is, the rows behind it are read: a stray quote does not swallow them."""
    before = before.replace(b"\n", b"").replace(b"\r", b"")
    rows = b"".join(b"%d,k-%d,,,,,1713553298.5\n" % (i, i) for i in range(n))
    blocks = read(",".join(NAMES).encode() + b"\n" + before + b"\n" + rows)
    found = [row for row in with_lines(blocks) if row[-2] > 2]
    assert [(row[0], row[-2]) for row in found] == [(f"k-{i}", 3 + i) for i in range(n)]


@pytest.mark.parametrize("size", [1000, 8 << 20])
def test_a_stray_quote_costs_one_row_of_a_large_file(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quote that is never closed sets one row aside, and the file is still read in pieces."""
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", size)
    rows = b"".join(b"%d,k,,,,,1713553298.5\n" % i for i in range(20_000))
    blocks = read(",".join(NAMES).encode() + b'\n0,"k,,,,,1713553298.5\n' + rows)
    assert [(row.line, row.reason) for row in aside(blocks)] == [(2, "a quote is not closed")]
    assert sum(len(block.table) for block in blocks) == 20_000
    if size == 1000:
        assert max(len(block.data) for block in blocks) < len(rows) / 4


def test_refusing_some_rows_more_loses_none() -> None:
    """A row that its reader refuses later is set aside with its lines and bytes, as it was."""
    header = ",".join(NAMES).encode() + b"\n"
    body = b'0,"a,,,\n1,bad,,,,,2\n2,c",,,,,2\n3,"d\nd",,,,,2\n'
    (block,) = read(header + body)
    bad = {row[-2]: "no good" for row in with_lines([block])}
    kept = block.without(bad)
    assert len(kept.table) == 0
    assert_accounted(body, [kept])
    assert {row.line: row.reason for row in kept.aside}.items() >= bad.items()


@given(rows=st.lists(ROWS, min_size=1, max_size=4), damage=DAMAGE, every=st.integers(1, 3))
@relaxed
def test_refusing_rows_of_a_damaged_file_loses_none(
    rows: list[Any], damage: list[Any], every: int
) -> None:
    """The same, for any rows of any file."""
    header, _, body = written(rows).partition(b"\n")
    data = harmed(body, damage)
    blocks = read(header + b"\n" + data)
    assert_accounted(
        data,
        [
            block.without({row[-2]: "no good" for row in with_lines([block])[::every]})
            for block in blocks
        ],
    )


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("soon", "time is not a valid time"),
        ("nan", "time is not a valid time"),
        ("inf", "time is not a valid time"),
        ("-1", "time is not a valid time"),
        ("1e30", "time is not a valid time"),
        ("", "time is empty"),
        ("9223372036.9", "time is not a valid time"),
        ("2024-13-01", "time is not a valid time"),
        ("0001-01-01T00:00:00", "time is not a valid time"),
    ],
)
def test_an_invalid_time_is_the_reason(cell: str, reason: str) -> None:
    """A cell without a valid time sets its row aside, and no other row."""
    body = f"0,k,,,,,{cell}\n1,k,,,,,1713553298.5\n"
    blocks = read(",".join(NAMES).encode() + b"\n" + body.encode())
    assert [(row.line, row.reason) for row in aside(blocks)] == [(2, reason)]
    assert [row[-2] for row in with_lines(blocks)] == [3]


@pytest.mark.parametrize(
    ("cell", "ns"),
    [
        ("1713553298", 1713553298_000000000),
        ("1713553298.1234567", 1713553298_123456700),
        ("1713553298.123456789", 1713553298_123456789),
        ("1.713553298E9", 1713553298_000000000),
        ("2024-04-19T19:01:38", 1713553298_000000000),
        ("2024-04-19T19:01:38Z", 1713553298_000000000),
        ("2024-04-19 19:01:38.123456+00:00", 1713553298_123456000),
        ("2024-04-19T21:01:38.5+02:00", 1713553298_500000000),
    ],
)
def test_a_time_keeps_its_digits(cell: str, ns: int) -> None:
    """Times are read to the last digit, in seconds or ISO 8601, in UTC unless they have a zone."""
    blocks = read(",".join(NAMES).encode() + f"\n0,k,,,,,{cell}\n".encode())
    assert [row[-3] for row in with_lines(blocks)] == [ns]


HEADERS: list[tuple[bytes, list[str]]] = [
    (b"", []),
    (b"\n", []),
    (b"\xef\xbb\xbf,key,time\n0,k,1\n", ["", "key", "time"]),
    (b",key,time\r\n0,k,1\r\n", ["", "key", "time"]),
    (b', key ,"time"\n0,k,1\n', ["", "key", "time"]),
]


@pytest.mark.parametrize(("data", "names"), HEADERS, ids=[str(d) for d, _ in HEADERS])
def test_headers(data: bytes, names: list[str], tmp_path: Path) -> None:
    """A header is read with a byte order mark, with CRLF, quoted, or not at all."""
    (tmp_path / "a.csv").write_bytes(data)
    file = CsvFile(tmp_path / "a.csv", FIELDS)
    assert file.names == names
    assert file.missing == ([] if names else ["key", "time"])
    assert cells(list(file.blocks())) == ([("k", 10**9)] if names else [])


@given(header=st.binary(max_size=30), body=st.binary(max_size=30))
@example(header=b",key\r,time", body=b"\r0,k,1\r")
@example(header=b"a" * 200_000, body=b"")
@example(header=b'"', body=b"")
@example(header=b"key,key,time", body=b"a,b,1\n")
def test_any_bytes_are_a_file_that_can_be_read(header: bytes, body: bytes) -> None:
    """Whatever a file holds, nothing raises, and all behind its first line is accounted for."""
    header = header.replace(b"\n", b"")
    assert_accounted(body, read(header + b"\n" + body))


def test_unknown_and_repeated_columns_are_named(tmp_path: Path) -> None:
    """A column that nobody asked for is named, and so is a second one of the same name."""
    (tmp_path / "a.csv").write_bytes(b",key,mood,time,key\n0,k,good,1,other\n")
    file = CsvFile(tmp_path / "a.csv", FIELDS)
    assert file.unknown == ["mood", "key"]
    assert cells(list(file.blocks())) == [("k", 10**9)]


def test_rows_of_a_file_without_a_required_column_are_set_aside(tmp_path: Path) -> None:
    """Without a required column all rows are set aside, and the reason names the column."""
    (tmp_path / "a.csv").write_bytes(b",key\n0,k\n1,k\n")
    file = CsvFile(tmp_path / "a.csv", FIELDS)
    assert file.missing == ["time"]
    found = aside(list(file.blocks()))
    assert [(row.line, row.reason) for row in found] == [
        (2, "the file has no column time"),
        (3, "the file has no column time"),
    ]


def test_a_huge_row_without_an_end_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes without any end of line do not fill the memory: they are set aside in pieces."""
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_blocks, "MAX_ROW_BYTES", 1000)
    blocks = read(",".join(NAMES).encode() + b"\n" + b"x" * 5000)
    assert len(blocks) > 2
    assert max(len(block.data) for block in blocks) <= 1200
    assert b"".join(row.data for row in aside(blocks)) == b"x" * 5000


def test_bad_utf8_costs_only_rows_that_need_it(tmp_path: Path) -> None:
    """A row is set aside for bytes that are no UTF-8 in a cell that is used, not in another."""
    path = tmp_path / "a.csv"
    path.write_bytes(b",key,time\n\xff,k,1\n1,\xff,1\n2,k,1\n")
    (block,) = CsvFile(path, FIELDS).blocks()
    assert block.table["line"].to_pylist() == [2, 4]
    assert [(row.line, row.reason) for row in block.aside] == [(3, "not UTF-8")]
