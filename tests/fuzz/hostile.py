"""Hostile runs: small on disk, but large, slow or malformed for a reader."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from dask_strata.schema import FORMAT_VERSION, RECORDED
from dask_strata.store.compact import compact
from dask_strata.store.segments.encode import (
    BYTE,
    CODES,
    CONST,
    DELTA,
    DICT,
    FLOAT,
    INT64,
    INTERVALS,
    NUMBERS,
    PLAIN,
    PLANED,
    SOME,
    STEPS,
    TEXTS,
    UINT32,
)
from dask_strata.store.segments.frames import MAGIC
from tests.support.synthetic import small_run

LAYOUT = {name: [c.name for c in table.columns] for name, table in RECORDED.items()}
NUMBER = {name: i for i, name in enumerate(RECORDED)}
HEADER = {"format": FORMAT_VERSION, "process": "worker-9", "role": "worker", "tables": LAYOUT}


def framed(payload: bytes) -> bytes:
    """Return a frame with these bytes as payload, and a valid checksum."""
    return struct.pack("<4sII", MAGIC, len(payload), zlib.crc32(payload)) + payload


def frame(body: Any) -> bytes:
    """Return a frame with any content."""
    raw = body if isinstance(body, bytes) else msgpack.packb(body)
    return framed(zstandard.ZstdCompressor(level=3).compress(raw))


def batch(table: str, n: int, seq: int = 0, **columns: Any) -> list[Any]:
    """Return the body of a frame of one batch, from encoded columns."""
    return [seq, [[NUMBER[table], n, [columns.get(name) for name in LAYOUT[table]]]]]


def segment(run: Path, *parts: bytes) -> None:
    """Add a segment to a run."""
    (run / "segments" / "worker-9.seg").write_bytes(frame(HEADER) + b"".join(parts))


def _claims_terabytes(run: Path) -> None:
    segment(run, framed(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + bytes(20)))


def _unpacks_to_a_gigabyte(run: Path) -> None:
    segment(run, frame(bytes(1 << 27)), frame(bytes(30 << 20)))


def _unpacks_again_and_again(run: Path) -> None:
    one = frame(batch("job", 1, name=[CONST, "x" * (30 << 20)]))
    segment(run, *[one] * 60)


def _claims_nested_lists(run: Path) -> None:
    segment(run, *[frame((b"\xdd" + struct.pack(">I", 1 << 20)) * 1000 + bytes(1 << 20))] * 30)


def _has_a_million_lists(run: Path) -> None:
    million = b"\xdd" + struct.pack(">I", 1 << 20) + b"\x90" * (1 << 20)
    segment(run, frame(b"\xdc\x00\x14" + million * 20))


def _has_a_million_mappings(run: Path) -> None:
    million = b"\xdd" + struct.pack(">I", 1 << 20) + b"\x80" * (1 << 20)
    segment(run, frame(b"\xdc\x00\x14" + million * 20))


def _nests_deeply(run: Path) -> None:
    segment(run, frame(b"\x91" * 1_000_000 + b"\xc0"), frame([0, [[0, 1, b"\x91" * 1000]]]))


def _claims_many_rows(run: Path) -> None:
    many = [batch("job", n, seq, value=[CONST, None]) for seq, n in enumerate((1 << 20, 1 << 40))]
    segment(run, *map(frame, many))


def _has_the_same_row_again_and_again(run: Path) -> None:
    one = (1 << 20) - 1
    rows = [frame(batch("job", one, i * one, name=[CONST, "x"])) for i in range(300)]
    segment(run, *rows)


def _has_one_long_text_in_all_rows(run: Path) -> None:
    n, text = 1 << 17, "x" * (1 << 20)
    positions = bytes(n)
    segment(
        run,
        frame(batch("job", n, value=[DICT, [text, "y"], positions])),
        frame(batch("job", n, value=[CONST, text])),
    )


def _has_one_long_typed_text_in_all_rows(run: Path) -> None:
    n, text = 1 << 17, b"x" * (1 << 20)
    sizes = struct.pack("<2I", len(text), 1)
    segment(
        run,
        frame(batch("job", n, value=[TEXTS, text + b"y", [UINT32, sizes], bytes(n)])),
        frame(batch("executions", n, n, exception=[TEXTS, text + b"y", [UINT32, sizes], bytes(n)])),
    )


def _has_many_typed_rows_in_few_bytes(run: Path) -> None:
    n = (1 << 20) - 1
    rows = [
        frame(batch("counters", n, i * n, value=[NUMBERS, FLOAT | PLANED, bytes(8 * n)]))
        for i in range(120)
    ]
    segment(run, *rows)


def _has_many_intervals_in_few_bytes(run: Path) -> None:
    n = 1 << 10
    counts = struct.pack(f"<{n}H", *[(1 << 10) - 1] * n)
    intervals = [INTERVALS, [CODES.index("H"), counts], *([CONST, v] for v in ("x", 1, 1, "y"))]
    rows = [
        frame(batch("scheduler_transitions", n, i * n, key=[CONST, "k"], startstops=intervals))
        for i in range(120)
    ]
    segment(run, *rows)


def _has_odd_typed_columns(run: Path) -> None:
    ff, some = b"\xff" * 8, [SOME, b"\x01", [CONST, 1]]
    odd: list[Any] = [
        [NUMBERS], [NUMBERS, 99, b"\0\0"], [NUMBERS, -1, b"\0\0"], [NUMBERS, BYTE, b"\0"],
        [NUMBERS, BYTE, "xx"], [NUMBERS, True, b"\0\0"], [NUMBERS, [], b"\0\0"],
        [STEPS, 1 << 62, BYTE, b"\0"], [STEPS, "x", BYTE, b"\0"], [STEPS, 0, FLOAT, ff],
        [STEPS, 0, INT64, struct.pack("<q", 1 << 62)], [STEPS, 0, BYTE, b""],
        [STEPS, -1, BYTE, b"x"],
        [TEXTS, b"ab", b"\1\2", None], [TEXTS, b"ab", b"\1", b"\0\1"], [TEXTS, b"ab", 1, b"\0\2"],
        [TEXTS, b"ab", b"\1\1\0", b"\0\1"], [TEXTS, b"", b"", b"\0\0"], [TEXTS, b"", 0, b"\0\0"],
        [TEXTS, b"\xff\xff", b"\1\1", None], [TEXTS, 7, 1, None], [TEXTS, b"ab", -1, None],
        [TEXTS, "é".encode(), b"\1\1", None], [TEXTS, b"ab", [FLOAT, ff * 2], None],
        [TEXTS, b"ab", b"\2", [INT64, ff * 2]], [TEXTS, "ab", 1, None], [TEXTS, b"ab", 1, 7],
        [TEXTS, b"ab", [UINT32, b"\2\0\0\0" + b"\xff" * 4], None], [TEXTS, b"ab", 1 << 40, None],
        [TEXTS, b"ab", [99, b"\1\1"], b"\0\1"], [TEXTS, b"ab", [], None], [TEXTS, b"ab", 1, []],
        [SOME, b"\x04", [CONST, 1]], [SOME, b"", [CONST, 1]], [SOME, b"\x01", some],
        [SOME, b"\x01\0", [CONST, 1]], [SOME, "x", [CONST, 1]], [SOME, 3, [CONST, 1]],
        [SOME, b"\x03", [NUMBERS, BYTE, b"\0"]], [INTERVALS, b"\1\1", None, None, None],
        [INTERVALS, b"\1", *[None] * 4],
        [INTERVALS, b"\1\1", *[[NUMBERS, BYTE, b"1"]] * 4],
        [INTERVALS, [UINT32, b"\xff" * 8], *[[CONST, 1]] * 4],
        [INTERVALS, -1, *[None] * 4], [INTERVALS, 1 << 40, *[None] * 4],
        [INTERVALS, b"\1\0", *[[INTERVALS, b"\0", *[None] * 4]] * 4],
    ]  # fmt: skip
    bodies = [batch("job", 2, 2 * i, name=column) for i, column in enumerate(odd)]
    segment(run, *map(frame, bodies))


def _has_typed_columns_of_other_kinds(run: Path) -> None:
    columns: list[Any] = [
        [NUMBERS, BYTE, b"\x07\x08"], [NUMBERS, FLOAT, struct.pack("<2d", float("nan"), 1e300)],
        [NUMBERS, INT64, struct.pack("<2q", -(1 << 63), (1 << 63) - 1)], [STEPS, 5, BYTE, b"\1"],
        [TEXTS, b"ab", b"\1\1", None], [SOME, b"\x02", [CONST, "x"]],
        [INTERVALS, b"\1\0", [CONST, "x"], [CONST, -1], [CONST, 1], None],
        [INTERVALS, b"\1\1", [CONST, 7], [STEPS, 5, BYTE, b"\1"], [CONST, 1.5], [CONST, "x"]],
        [SOME, b"\x01", [INTERVALS, b"\2", *[[CONST, (1 << 63) - 1]] * 4]],
    ]  # fmt: skip
    parts, seq = [], 0
    for table, names in LAYOUT.items():
        for column in columns:
            parts.append(frame(batch(table, 2, seq, **dict.fromkeys(names, column))))
            seq += 2
    segment(run, *parts)


def _adds_texts(run: Path) -> None:
    segment(run, frame(batch("job", 5000, name=[DELTA, "x" * 1000, ["x" * 1000] * 4999])))


def _looks_like_frames(run: Path) -> None:
    segment(run, (struct.pack("<4sI", MAGIC, 1 << 20)) * 400_000)


def _is_a_hole(run: Path) -> None:
    segment(run)
    with (run / "segments" / "worker-9.seg").open("r+b") as file:
        file.truncate(1 << 42)
        file.seek(1 << 41)
        file.write(frame(batch("job", 1, name=[CONST, "behind"])))


def _is_of_no_types(run: Path) -> None:
    odd = [None, True, -1, 1 << 63, -(1 << 63), float("nan"), float("inf"), "x", b"\xff", [], {}]
    parts, seq = [], 0
    for table, columns in LAYOUT.items():
        values = {name: [PLAIN, odd] for name in columns}
        parts.append(frame(batch(table, len(odd), seq, **values)))
        seq += len(odd)
    segment(run, *parts)


def _has_no_sense_of_time(run: Path) -> None:
    times = [0, 1, (1 << 63) - 1, -(1 << 63), (1 << 62) + 1, (1 << 64) - 1]
    parts, seq = [], 0
    for table in RECORDED.values():
        values = {
            c.name: [PLAIN, times if c.kind in ("time", "bytes", "int") else ["k"] * len(times)]
            for c in table.columns
            if c.kind != "intervals"
        }
        parts.append(frame(batch(table.name, len(times), seq, **values)))
        seq += len(times)
    long_ago = [
        [["compute", -(1 << 63), 1 << 63, None]],
        [["x", (1 << 64) - 1, 1, 7]],
        [1],
        7,
        "x",
        [],
    ]
    columns = {"key": [CONST, "k"], "startstops": [PLAIN, long_ago]}
    parts.append(frame(batch("scheduler_transitions", len(long_ago), seq, **columns)))
    segment(run, *parts)


def _has_odd_frames(run: Path) -> None:
    bodies: list[Any] = [
        None, 7, "x", [], [0], [0, []], [0, [0]], [[], []], [-1, [[0, 1, []]]], [1 << 63, []],
        [0, [[0, -1, []]]], [0, [[0, 2.5, []]]], [0, [[999, 1, []]]], [0, [[0, 1, "x"]]],
        [0, [["../x", 1, []]]], [True, [[0, True, []]]], batch("job", 2, name=[PLAIN, ["one"]]),
        batch("job", 2, name=[99]), batch("job", 2, name=[]), batch("job", 2, name="x"),
        batch("job", 2, name=[DICT, ["a"], b"\x07\x07"]), batch("job", 2, name=[CONST, {"a": 1}]),
        {"tables": 7}, {"tables": {"job": 7}}, {"tables": {"../x": ["a"]}}, {"host": [1]},
        batch("processes", 1, exit_reason=[PLAIN, [["x"]]]),
    ]  # fmt: skip
    list_as_key, extension = b"\x81\x90\x01", msgpack.packb(msgpack.ExtType(5, b"x"))
    segment(run, *map(frame, [*bodies, list_as_key, extension]))


def _has_an_odd_header(run: Path) -> None:
    facts = {**HEADER, "host": ["h"], "pid": 1 << 62, "pids": {}, "sample_interval_seconds": "x"}
    path = run / "segments" / "worker-8.seg"
    path.write_bytes(frame(facts) + frame(batch("processes", 1, role=[CONST, "worker"])))
    (run / "segments" / "worker-7.seg").write_bytes(frame({"tables": {7: ["a"]}}))
    segment(run)


def _repeats_rows_in_parquet(run: Path) -> None:
    compact(run)
    n = 1 << 24
    table = pa.table({name: pa.nulls(n, pa.string()) for name in ("name", "value")})
    folder = run / "parquet" / "job"
    folder.mkdir(exist_ok=True)
    with pq.ParquetWriter(folder / "part-0.parquet", table.schema, compression="zstd") as writer:
        for _ in range(16):
            writer.write_table(table, row_group_size=n)
    _index(run, job=n * 16)


def _repeats_a_text_in_parquet(run: Path) -> None:
    compact(run)
    n = 1 << 20
    texts = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int32()).fill_null(0), ["x" * (1 << 20)])
    folder = run / "parquet" / "job"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"value": texts}), folder / "part-0.parquet", compression="zstd")
    _index(run, job=n)


def _has_other_columns_in_parquet(run: Path) -> None:
    compact(run)
    names = [c.name for c in RECORDED["job"].all_columns]
    deep = pa.array([[[[1]]]])
    odd = pa.table(dict.fromkeys(names, deep) | {"unknown": pa.array([1])})
    tables = {
        "job": odd,
        "packages": pa.table({"name": pa.array([1, 2]), "process": pa.array([b"\xff", None])}),
        "spills": pa.table({"time": pa.array(["x"]), "nbytes": pa.array([2.5])}),
        "counters": pa.table({"time": [(1 << 63) - 1], "value": pa.array([1 << 63], "uint64")}),
        "config": pa.table({}),
        "../worker_events": odd,
    }
    for name, table in tables.items():
        folder = run / "parquet" / name.strip("./")
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / "part-9.parquet")
    _index(run, **dict.fromkeys((n for n in tables if "/" not in n), 1))


def _has_damaged_parquet(run: Path) -> None:
    compact(run)
    for n, path in enumerate(sorted((run / "parquet").rglob("*.parquet"))):
        data = bytearray(path.read_bytes())
        data[len(data) // 2 + n :: 97] = b"\xff" * len(data[len(data) // 2 + n :: 97])
        path.write_bytes(data)


def _index(run: Path, **tables: int) -> None:
    path = run / "parquet" / "index.json"
    facts = json.loads(path.read_text())
    facts["tables"] |= tables
    path.write_text(json.dumps(facts))


def _as_if_written(harm: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a function that also adapts the checksums in the index."""

    def forge(run: Path) -> None:
        harm(run)
        path = run / "parquet" / "index.json"
        facts = json.loads(path.read_text())
        for name in facts["tables"]:
            for file in (run / "parquet" / name).glob("*.parquet"):
                facts["checksums"][name] = [zlib.crc32(file.read_bytes())]
        path.write_text(json.dumps(facts))

    return forge


def _texts_of_index(text: str) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        compact(run)
        (run / "parquet" / "index.json").write_bytes(text.encode("utf-8", "surrogateescape"))

    return harm


_VERBS = ("_claims", "_unpacks", "_has", "_nests", "_adds", "_looks", "_is", "_repeats")

#: Functions that damage a run, by name.
HARMS: dict[str, Callable[[Path], None]] = {
    name.lstrip("_"): harm for name, harm in list(globals().items()) if name.startswith(_VERBS)
} | {
    "repeats rows as if written": _as_if_written(_repeats_rows_in_parquet),
    "repeats a text as if written": _as_if_written(_repeats_a_text_in_parquet),
    "has other columns as if written": _as_if_written(_has_other_columns_in_parquet),
    "has damaged parquet as if written": _as_if_written(_has_damaged_parquet),
    "nested index": _texts_of_index("[" * 100_000),
    "large index": _texts_of_index("[" + "[]," * (12 << 20)),
    "index that is no text": _texts_of_index('{"tables": {"\udcff": 1}, "segments": []}'),
    "index of a number": _texts_of_index("7"),
    "index of huge numbers": _texts_of_index('{"tables": {"job": 1e400}, "segments": []}'),
    "index of negative rows": _texts_of_index('{"tables": {"job": -1}, "segments": []}'),
    "index of odd segments": _texts_of_index('{"tables": {}, "segments": [{"process": 1}, []]}'),
    "index of digits": _texts_of_index('{"tables": {"job": ' + "9" * 5000 + '}, "segments": []}'),
}


def harmed(folder: Path, name: str) -> Path:
    """Return a small run after one of `HARMS`."""
    run = small_run(folder / name.replace(" ", "-"))
    HARMS[name](run)
    return run
