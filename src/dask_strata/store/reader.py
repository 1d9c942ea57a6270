"""Reading what is on record: segments, Parquet, or both, whatever became of them.

The tables are the same either way. What cannot be read is left out, and a row of
`losses` says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from dask_strata.schema import RECORDED, TABLES, Column, Kind, Table, split_wire_key
from dask_strata.store.frames import CUT, Damage, FrameError, decode, payloads, unpack
from dask_strata.store.manifest import PARQUET, SEGMENTS, SUFFIX, Manifest

#: File in the Parquet folder that says which part of which segment it holds.
INDEX = "index.json"

_ROWS_A_BATCH = 100_000

_TIME = pa.timestamp("ns", "UTC")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_INTERVALS = pa.list_(
    pa.struct([("action", pa.string()), ("start", _TIME), ("stop", _TIME), ("source", pa.string())])
)
_ARROW: dict[Kind, pa.DataType] = {
    "time": _TIME,
    "seconds": pa.float64(),
    "bytes": pa.int64(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text": _TEXT,
    "long": pa.string(),
    "key": _TEXT,
    "intervals": _INTERVALS,
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table; each field carries its meaning and unit."""
    fields = []
    for column in table.all_columns:
        about = {"meaning": column.meaning}
        if column.unit:
            about["unit"] = column.unit
        fields.append(pa.field(column.name, _ARROW[column.kind], metadata=about))
        if column.kind == "key":
            fields.append(
                pa.field(
                    f"{column.name}_type",
                    _TEXT,
                    metadata={
                        "meaning": f"type of the Python object that {column.name} is the text of",
                    },
                )
            )
    return pa.schema(
        fields, metadata={"row": table.row, "layer": table.layer, "level": table.level}
    )


@dataclass
class Segment:
    """What is known of one process's segment.

    ``end_reason`` is null as long as the process has not written its last row.
    """

    process: str
    path: Path
    size: int
    modified: float
    header: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    damages: list[str] = field(default_factory=list)
    lost_rows: int = 0
    end_reason: str | None = None
    host: str | None = None


class _Rows:
    """Collects the rows of one table and turns them into Arrow in large pieces."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = arrow_schema(table)
        self._columns: dict[str, list[Any]] = {c.name: [] for c in table.all_columns}
        self._n = 0
        self._batches: list[pa.RecordBatch] = []
        self.unusable = 0

    def extend(self, n: int, columns: Mapping[str, list[Any]], process: str, seq: int) -> None:
        for name, values in self._columns.items():
            given = columns.get(name)
            if given is not None:
                values.extend(given)
            elif name == "process":
                values.extend([process] * n)
            elif name == "seq":
                values.extend(range(seq, seq + n))
            else:
                values.extend([None] * n)
        self._n += n
        if self._n >= _ROWS_A_BATCH:
            self._seal()

    def _seal(self) -> None:
        arrays: list[pa.Array] = []
        for column in self._table.all_columns:
            values = self._columns[column.name]
            arrays.extend(self._arrays(column, values))
            self._columns[column.name] = []
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._n = 0

    def _arrays(self, column: Column, values: list[Any]) -> list[pa.Array]:
        if column.kind == "key":
            pairs = [(None, None) if v is None else _split(v) for v in values]
            texts, kinds = zip(*pairs, strict=True) if pairs else ((), ())
            return [self._array("text", list(texts)), self._array("text", list(kinds))]
        if column.kind == "intervals":
            values = [None if v is None else [_interval(i) for i in v] for v in values]
        return [self._array(column.kind, values)]

    def _array(self, kind: Kind, values: list[Any]) -> pa.Array:
        target = _ARROW[kind]
        plain = pa.string() if target == _TEXT else target
        try:
            array = pa.array(values, plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            array = pa.array([self._usable(v, plain) for v in values], plain)
        return array.dictionary_encode() if target == _TEXT else array

    def _usable(self, value: Any, plain: pa.DataType) -> Any:
        try:
            pa.array([value], plain)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            self.unusable += 1
            return None
        return value

    def table(self) -> pa.Table:
        if self._n:
            self._seal()
        return pa.Table.from_batches(self._batches, self._schema).unify_dictionaries()


def _split(wire: Any) -> tuple[str | None, str | None]:
    return split_wire_key(wire) if isinstance(wire, str) else (None, None)


def _interval(item: Any) -> Any:
    action, start, duration, source = item
    return {"action": action, "start": start, "stop": start + duration, "source": source}


@dataclass
class Record:
    """Everything that is on record in a run's folder.

    Attributes
    ----------
    tables : dict of name to pyarrow.Table
        The recorded tables, each with the columns of the schema.
    segments : list of Segment
        The segments, whether read now or compacted before.
    """

    manifest: Manifest
    folder: Path
    tables: dict[str, pa.Table]
    segments: list[Segment]


def fingerprint(folder: Path) -> tuple[Any, ...]:
    """Return something that changes when there is more, or less, to read."""
    files = []
    for path in (folder / SEGMENTS, folder / PARQUET / INDEX):
        try:
            entries = list(os.scandir(path)) if path.is_dir() else [path]
            files += [(e.name, e.stat().st_size) for e in entries]
        except OSError:
            continue
    return tuple(sorted(files))


def read_record(folder: Path) -> Record:
    """Read everything that can be read.

    Parameters
    ----------
    folder : Path
        The run's folder.

    Raises
    ------
    NotARunError, NewerRunError
        It is no run, or one of a later version.
    """
    manifest = Manifest.read(folder)
    index = read_index(folder)
    rows = {name: _Rows(table) for name, table in RECORDED.items()}
    segments = [
        Segment(**{**s, "path": folder / SEGMENTS / f"{s['process']}{SUFFIX}"})
        for s in index["segments"]
    ]
    covered = {s.process: s for s in segments}
    for path in sorted((folder / SEGMENTS).glob(f"*{SUFFIX}")):
        known = covered.get(path.stem)
        segment = _read_segment(path, 0 if known is None else known.size, rows)
        if known is None:
            segments.append(segment)
        elif segment.size > known.size:
            known.size, known.modified = segment.size, segment.modified
            known.end_reason = segment.end_reason or known.end_reason
    compacted, unreadable = {}, []
    for name in index["tables"]:
        if name in rows:
            try:
                compacted[name] = _read_parquet(folder, name)
            except (OSError, pa.ArrowException) as error:
                unreadable.append((name, index["tables"][name], str(error).splitlines()[0]))
    _add_losses(segments, covered, rows)
    for name, count, reason in unreadable:
        _add_loss(
            rows,
            what=name,
            count=count,
            reason=f"its Parquet cannot be read: {reason}",
            where=PARQUET,
        )
    tables = {name: collected.table() for name, collected in rows.items()}
    for name, found in compacted.items():
        tables[name] = pa.concat_tables([found, tables[name]]).unify_dictionaries()
    return Record(manifest, folder, tables, segments)


def _read_segment(path: Path, offset: int, rows: Mapping[str, _Rows]) -> Segment:
    try:
        stat, data = path.stat(), path.read_bytes()
    except OSError as error:
        segment = Segment(path.stem, path, 0, 0.0)
        segment.damages.append(f"cannot be read: {error.strerror or error}")
        return segment
    segment = Segment(path.stem, path, stat.st_size, stat.st_mtime)
    if not data:
        segment.damages.append("the file is empty")
        return segment
    position = 0
    expected: int | None = None
    for payload in payloads(data):
        if isinstance(payload, Damage):
            position += payload.length
            if position > offset:
                segment.damages.append(
                    f"{payload.length} bytes at {payload.offset}: {payload.reason}"
                )
            continue
        position += len(payload) + 12
        try:
            body = unpack(payload)
            if isinstance(body, dict):
                segment.header = segment.header or body
                segment.host = segment.header.get("host")
                continue
            if position <= offset:
                continue
            expected = _add_frame(segment, body, expected, rows)
        except FrameError as error:
            segment.damages.append(f"{len(payload)} bytes before {position}: {error}")
    if (
        segment.damages
        and segment.damages[-1].endswith(CUT)
        and segment_state(segment) == "recording"
    ):
        segment.damages.pop()  # a frame that is just being written
    return segment


def _add_frame(
    segment: Segment, body: Any, expected: int | None, rows: Mapping[str, _Rows]
) -> int | None:
    layout = segment.header.get("tables")
    if not isinstance(layout, dict):
        raise FrameError("the header is missing, so that nothing says which columns these are")
    batches = list(decode(body, layout))
    for table, seq, n, columns in batches:
        if expected is not None and seq < expected:
            continue  # sent twice, because the answer to the first time was lost
        if expected is not None and seq > expected:
            segment.lost_rows += seq - expected
        expected = seq + n
        segment.rows += n
        if table in rows:
            rows[table].extend(n, columns, segment.process, seq)
        if table == "processes":
            reasons = [r for r in columns.get("exit_reason", ()) if r]
            segment.end_reason = reasons[-1] if reasons else segment.end_reason
    return expected


def _add_losses(
    segments: Sequence[Segment], covered: Mapping[str, Segment], rows: Mapping[str, _Rows]
) -> None:
    for segment in segments:
        if segment.process in covered:
            continue
        about: dict[str, Any] = {
            "time": int(segment.modified * 1e9),
            "where": segment.path.name,
            "process": segment.process,
        }
        for damage in segment.damages:
            _add_loss(rows, what="segment", reason=damage, **about)
        if segment.lost_rows:
            _add_loss(
                rows, what="rows", count=segment.lost_rows, reason="a frame is missing", **about
            )
    for name, collected in rows.items():
        if collected.unusable:
            _add_loss(
                rows,
                what=name,
                count=collected.unusable,
                reason="values of the wrong type were read as null",
            )


def _add_loss(rows: Mapping[str, _Rows], process: str = "reader", **loss: Any) -> None:
    rows["losses"].extend(1, {name: [value] for name, value in loss.items()}, process, 0)


def parquet_folder(folder: Path) -> Path | None:
    """Return the folder with the run's Parquet, also after an interrupted compaction."""
    for name in (PARQUET, f"{PARQUET}.old"):
        if (folder / name / INDEX).is_file():
            return folder / name
    return None


def read_index(folder: Path) -> dict[str, Any]:
    """Return what the Parquet folder says it holds; nothing, if it is not there or damaged."""
    try:
        home = parquet_folder(folder) or folder
        index = json.loads((home / INDEX).read_text(encoding="utf-8"))
        if isinstance(index["segments"], list) and isinstance(index["tables"], dict):
            return index  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {"segments": [], "tables": {}}


def _read_parquet(folder: Path, name: str) -> pa.Table:
    schema = arrow_schema(TABLES[name])
    home = parquet_folder(folder) or folder
    found = ds.dataset(home / name, format="parquet").to_table()
    arrays = [
        found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(len(found), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def segment_state(segment: Segment) -> str:
    """Return ended, recording or cut: whether a process has ended, goes on, or was cut off."""
    if segment.end_reason is not None:
        return "ended"
    pid = segment.header.get("pid")
    if isinstance(pid, int) and pid > 0 and segment.host == os.uname().nodename:
        return "recording" if _alive(pid) else "cut"
    return "recording" if time.time() - segment.modified < _SILENT_SECONDS else "cut"


#: A process that wrote nothing for so long, sampling twice a second, is taken as gone.
_SILENT_SECONDS = 60


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[:1] != ["Z"]


def find_runs(runs: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder, oldest first by name."""
    if (runs / "run.json").is_file():
        yield runs
        return
    try:
        entries = sorted(p for p in runs.iterdir() if p.is_dir())
    except OSError:
        return
    for path in entries:
        if (path / "run.json").is_file():
            yield path
