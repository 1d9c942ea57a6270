"""All tables as Parquet, CSV, SQLite and DuckDB, as other tools read them."""

from __future__ import annotations

import csv
import json
import re
import resource
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import Run, open_run
from dask_strata.errors import StrataError
from dask_strata.export.tabular import reading
from dask_strata.export.tabular.reading import export_schema
from dask_strata.export.tabular.texts import guarded, restored
from dask_strata.export.unrecorded import without
from dask_strata.report.words import spreadsheet_text
from dask_strata.run.duckdb_session import TIME_TYPE
from dask_strata.run.finalise import finalise
from dask_strata.schema import TABLES
from tests.support.exported import files_of, texts_of
from tests.support.planted_secrets import PLANTED, planted_run
from tests.support.synthetic import T0, Process, life, new_run, small_run

#: Texts that break writers of files: NUL, quotes, lines, formulas, no ASCII, nothing.
HOSTILE = [
    "nul \0 in it",
    'quotes " and \' and ""',
    "two\nlines\r\nand\ra tab\t,",
    "=cmd|' /C calc'!A0",
    "'=1+1",
    "'it",
    "-1.5",
    "@x",
    "\r",
    "",
    "NULL",
    "surrogate \\ud800, ü, 漢字, 🦜, \u202e",
    "'; drop table tasks; --",
    "x" * 100_000,
]


def plain(run: Run) -> dict[str, pa.Table]:
    """Return all tables of a run as Arrow, with plain texts."""
    return {name: run[name].to_arrow().cast(export_schema(table)) for name, table in TABLES.items()}


def from_parquet(path: Path) -> dict[str, pa.Table]:
    return {name: pq.read_table(path / f"{name}.parquet") for name in TABLES}


def from_csv(path: Path) -> dict[str, pa.Table]:
    """Read with Python's csv module, by what README.md and tables.json describe."""
    described = json.loads((path / "tables.json").read_text(encoding="utf-8"))
    found = {}
    for name, table in described.items():
        schema = export_schema(TABLES[name])
        with (path / table["file"]).open(encoding="utf-8", newline="") as file:
            first, *rows = list(csv.reader(file))
        assert first == [column["name"] for column in table["columns"]]
        columns = list(zip(*rows, strict=True)) or [()] * len(first)
        arrays = [
            pa.array([_value(cell, c["kind"]) for cell in cells], _integers(f.type))
            for cells, c, f in zip(columns, table["columns"], schema, strict=True)
        ]
        found[name] = pa.table(arrays, first).cast(schema)
    return found


def _value(cell: str, kind: str) -> Any:
    if kind in ("text", "long", "key"):
        return restored(cell)
    if cell == "":
        return None
    if kind == "time":
        seconds, fraction = re.fullmatch(r"(.*)\.(\d{9})Z", cell).groups()  # type: ignore[union-attr]
        return pd.Timestamp(seconds, tz="UTC").value + int(fraction)
    return {"bool": lambda c: c == "true", "intervals": json.loads}.get(kind, float)(cell)


def _integers(kind: pa.DataType) -> pa.DataType:
    """Return a type with integers in place of times."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(pa.struct([(f.name, _integers(f.type)) for f in kind.value_type]))
    return kind


def from_sqlite(path: Path) -> dict[str, pa.Table]:
    found = {}
    with closing(sqlite3.connect(path)) as database:
        for name, table in TABLES.items():
            schema = export_schema(table)
            cursor = database.execute(f'select * from "{name}"')
            assert [each[0] for each in cursor.description] == schema.names
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(schema)
            arrays = []
            for cells, field in zip(columns, schema, strict=True):
                read = {pa.types.is_boolean: bool, pa.types.is_list: json.loads}
                how = next((read[test] for test in read if test(field.type)), lambda c: c)
                values = [None if cell is None else how(cell) for cell in cells]
                arrays.append(pa.array(values, _integers(field.type)))
            found[name] = pa.table(arrays, schema.names).cast(schema)
    return found


def from_duckdb(path: Path) -> dict[str, pa.Table]:
    found = {}
    with duckdb.connect(str(path), read_only=True) as database:
        for name, table in TABLES.items():
            rows = database.sql(f'from "{name}"').to_arrow_table()
            found[name] = rows.cast(export_schema(table))
    return found


READERS: dict[str, Callable[[Path], dict[str, pa.Table]]] = {
    "parquet": from_parquet,
    "csv": from_csv,
    "sqlite": from_sqlite,
    "duckdb": from_duckdb,
}
every_format = pytest.mark.parametrize("to", READERS)


def exported(run: Run, to: str, folder: Path) -> Path:
    path = folder / f"{to}.{to}" if to in ("sqlite", "duckdb") else folder / to
    run.export(path, to=to)
    return path


def assert_equal(found: dict[str, pa.Table], expected: dict[str, pa.Table], to: str) -> None:
    """Compare all tables; Python's csv module has no null texts."""
    assert found.keys() == expected.keys() == TABLES.keys()
    for name, rows in expected.items():
        assert len(found[name]) == len(rows), name
        for column in rows.column_names:
            one, other = found[name][column], rows[column]
            if to == "csv" and other.type == pa.string():
                other = pc.fill_null(other, "")
            if pa.types.is_timestamp(other.type) and TIME_TYPE != "timestamptz_ns":
                other = other.cast(pa.timestamp("us", "UTC"), safe=False).cast(other.type)
            assert one.to_pylist() == other.to_pylist(), (name, column)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose keys, names and exceptions are hostile."""
    folder = new_run(tmp_path_factory.mktemp("hostile") / "run")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    rows = []
    for i, text in enumerate(HOSTILE):
        rows += life(f"{text}-{i}", 1 + i, 2 + i, "tcp://w:1", exception=text)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.write("job", [{"name": text, "value": text, "source": text} for text in HOSTILE])
    added = {"worker": "tcp://w:1", "name": "w", "action": "add", "reason": "2 threads"}
    scheduler.write("worker_events", [{"time": T0 + 123_456_789, **added}])
    scheduler.end()
    Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=2).end()
    return folder


@every_format
def test_hostile_texts_and_nanoseconds_survive(to: str, hostile: Path, tmp_path: Path) -> None:
    """Every value of every table is that of the run; tables without rows are there, too."""
    if to == "csv" and sys.version_info < (3, 11):
        pytest.skip("Python's csv module accepts no NUL before 3.11")
    csv.field_size_limit(1 << 20)
    run = open_run(hostile)
    path = exported(run, to, tmp_path)
    assert_equal(READERS[to](path), plain(run), to)
    says = "Times are cut to microseconds" in texts_of(path)
    assert says == (TIME_TYPE != "timestamptz_ns")
    assert set(run.job["scheduler-1"]) == set(HOSTILE)


@pytest.fixture(scope="module")
def finalised(eventful: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which much happened, finalised with several files a table."""
    path = Path(shutil.copytree(eventful, tmp_path_factory.mktemp("finalised") / "run"))
    finalise(path, keys_per_bucket=60)
    return path


@pytest.mark.long
def test_all_tables_of_a_run(
    finalised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, values and sums are those of the run, with texts of keys that are looked up here."""
    monkeypatch.setattr(reading, "_MANY_KEYS", 1)
    run = open_run(finalised)
    expected = plain(run)
    paths = {to: exported(run, to, tmp_path) for to in READERS}
    sums = {name: _sums(run, name) for name in TABLES}
    for to, path in paths.items():
        found = READERS[to](path)
        for name, rows in expected.items():
            assert len(found[name]) == len(rows) == sums[name].pop("*"), name
            for column, values in _sorted(rows, blank=to == "csv").items():
                # The tables of `Run` are in another order than their files.
                assert _sorted(found[name])[column] == values, (to, name, column)
            for column, total in sums[name].items():
                assert (pc.sum(found[name][column]).as_py() or 0) == pytest.approx(total or 0)
            sums[name]["*"] = len(rows)
    _open_in_other_tools(run, paths)


def _sums(run: Run, name: str) -> dict[str, float]:
    """Return the number of rows, and the sums of all columns of numbers, by SQL."""
    kinds = ("int", "bytes", "seconds", "float")
    columns = [c.name for c in TABLES[name].all_columns if c.kind in kinds]
    sums = ", ".join(f'sum("{column}")::double as "{column}"' for column in columns)
    (found,) = run.rows(f'select count(*) as "*"{", " if sums else ""}{sums} from {name}')
    return found


def _sorted(rows: pa.Table, *, blank: bool = False) -> dict[str, list[str]]:
    found = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        is_text = blank and column.type == pa.string()
        values = pc.fill_null(column, "") if is_text else column
        found[name] = sorted(map(repr, values.to_pylist()))
    return found


def _open_in_other_tools(run: Run, paths: dict[str, Path]) -> None:
    """Pandas, Polars and DuckDB read each format with the types of the columns."""
    n = len(run.tasks)
    seconds = pytest.approx(run.rows("select sum(compute_seconds) as s from attempts")[0]["s"])
    parquet, text = paths["parquet"], paths["csv"]
    frame = pd.read_parquet(parquet / "attempts.parquet")
    assert frame["compute_seconds"].sum() == seconds
    assert str(frame["start"].dtype) == "datetime64[ns, UTC]"
    assert pl.read_parquet(parquet / "attempts.parquet")["compute_seconds"].sum() == seconds
    assert len(pl.read_csv(text / "tasks.csv", infer_schema_length=None)) == n
    starts = pd.read_csv(text / "attempts.csv", parse_dates=["start"])["start"]
    assert starts.tolist() == frame["start"].tolist()
    query = "select sum(compute_seconds) from read_csv(?)"
    assert duckdb.execute(query, [str(text / "attempts.csv")]).fetchall()[0][0] == seconds
    with closing(sqlite3.connect(paths["sqlite"])) as database:
        assert len(pd.read_sql("select * from tasks", database)) == n
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
    with duckdb.connect(str(paths["duckdb"]), read_only=True) as opened:
        found = opened.execute(
            "select typeof(start), sum(compute_seconds) from attempts group by 1"
        )
        assert found.fetchall() == [("TIMESTAMP_NS", seconds)]


def test_columns_are_described(hostile: Path, tmp_path: Path) -> None:
    """Each format has the meaning and unit of each column, and facts of the run."""
    run = open_run(hostile)
    meaning = TABLES["attempts"].column("compute_seconds").meaning
    parquet = exported(run, "parquet", tmp_path)
    schema = pq.read_schema(parquet / "attempts.parquet")
    assert schema.field("compute_seconds").metadata[b"meaning"].decode() == meaning
    for folder in (parquet, exported(run, "csv", tmp_path)):
        described = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
        assert {c["name"]: c["meaning"] for c in described["attempts"]["columns"]}[
            "compute_seconds"
        ] == meaning
        assert described["attempts"]["rows"] == len(run.attempts)
    with closing(sqlite3.connect(exported(run, "sqlite", tmp_path))) as database:
        query = 'select unit, meaning from _columns where "table" = ? and "column" = ?'
        assert database.execute(query, ("attempts", "compute_seconds")).fetchall() == [
            ("s", meaning)
        ]
        assert "nanoseconds" in database.execute(query, ("attempts", "start")).fetchone()[0]
        facts = dict(database.execute("select name, value from _export"))
        assert facts["run"] == run.manifest.run_id
    with duckdb.connect(str(exported(run, "duckdb", tmp_path)), read_only=True) as opened:
        query = "select comment from duckdb_columns() where table_name = ? and column_name = ?"
        assert opened.execute(query, ["attempts", "compute_seconds"]).fetchall() == [
            (f"{meaning} [s]",)
        ]
    assert pd.read_csv(tmp_path / "csv" / "_export.csv")["name"].tolist()[0] == "run"
    assert pd.read_parquet(parquet / "_export.parquet")["value"][0] == run.manifest.run_id


@pytest.mark.long
def test_what_is_left_out_is_in_no_byte(tmp_path: Path) -> None:
    """Planted source lines, paths and hosts are in no file, also where files are compressed."""
    run = open_run(planted_run(tmp_path / "run"))
    for to in READERS:
        said = texts_of(exported(run, to, tmp_path))
        assert all(word in said for word in PLANTED.values()), to
    with without(run, list(PLANTED)) as copy:
        (tmp_path / "without").mkdir()
        for to in READERS:
            path = exported(copy, to, tmp_path / "without")
            said = texts_of(path)
            assert "planted.py" in said
            data = b"".join(files_of(path).values())
            for word in PLANTED.values():
                assert word not in said, (to, word)
                assert word.encode() not in data, (to, word)


@given(st.text(alphabet="'=+-@\t\r\n\uff1d1.ea\"", max_size=8) | st.text())
def test_guarded_texts_can_be_restored(text: str) -> None:
    """No cell is a formula unless it is a number, and each text comes back."""
    cell = guarded(text)
    assert restored(cell) == text
    assert spreadsheet_text(cell) == cell


def test_a_database_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    """DuckDB hides the error of a full disk when a database is closed: nothing is left of it."""
    run = open_run(small_run(tmp_path / "run"))
    whole = run.export(tmp_path / "whole.duckdb", to="duckdb").size_bytes
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole - 1, limits[1]))
    try:
        with pytest.raises(StrataError, match="database cannot be written"):
            run.export(tmp_path / "part.duckdb", to="duckdb")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole.duckdb"]
