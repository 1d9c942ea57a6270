"""Runs that version 0.1 recorded are read, and every table is the same as it was then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dask_strata
from dask_strata.run.duckdb_session import TIME_TYPE
from dask_strata.schema import DERIVED, TABLES
from dask_strata.store.compact import compact

RECORDED_BY_0_1 = Path(__file__).parents[1] / "data" / "version_0_1"


#: Tables without rows in this run: for these, the test compares only the columns.
EMPTY = {
    "chunks", "darshan_counters", "darshan_logs", "darshan_segments", "functions", "imports",
    "io_segments", "key_prefixes", "library_reads", "losses", "package_mismatches",
    "profile_threads", "seen_chunks", "set_aside", "spills", "steals", "transfer_resends",
    "unmatched_reports",
}  # fmt: skip


#: Columns of phases, which were null where Dask reported the other phases of an attempt only. Such
#: a phase took no time.
PHASES = {
    "attempts": {"transfer_seconds", "deserialize_seconds", "disk_seconds"},
    "tasks": {"transfer_seconds"},
}


def as_then(table: pa.Table, then: pa.Table, name: str) -> pa.Table:
    """Return the columns that the table had then; a later version may have added others."""
    found = table.select(then.column_names).cast(then.schema)
    for column in PHASES.get(name, ()):
        i = then.column_names.index(column)
        no_time = pc.and_(pc.is_null(then[column]), pc.equal(found[column], 0.0))
        found = found.set_column(i, column, pc.if_else(no_time, None, found[column]))
    return found.cast(then.schema).combine_chunks()


def plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries: their order is no content."""
    texts = [
        f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema
    ]
    return table.cast(pa.schema(texts))


@pytest.fixture(params=["segments", "compacted", "compacted now"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the run: as segments, as Parquet of version 0.1, as Parquet of this version."""
    then = "segments" if request.param == "compacted now" else request.param
    copy = tmp_path / "run"
    shutil.copytree(RECORDED_BY_0_1 / then, copy)
    if request.param == "compacted now":
        compact(copy)
    return copy


@pytest.mark.skipif(
    TIME_TYPE == "timestamptz", reason="DuckDB before 2.0 computes times in microseconds"
)
def test_every_table_is_equal(folder: Path) -> None:
    """Recorded and derived tables, row for row and column for column."""
    run = dask_strata.open_run(folder)
    empty = set()
    for path in sorted((RECORDED_BY_0_1 / "tables").glob("*.parquet")):
        then = pq.read_table(path).combine_chunks()
        now = as_then(run[path.stem].to_arrow(), then, path.stem)
        assert now.schema == then.schema, path.stem
        assert plain(now).equals(plain(then)), path.stem
        if not len(then):
            empty.add(path.stem)
    assert empty == EMPTY


def test_no_table_is_missing() -> None:
    """Each table of version 0.1 is still there, and is read by the name that it had."""
    names = {path.stem for path in (RECORDED_BY_0_1 / "tables").glob("*.parquet")}
    assert names <= TABLES.keys()
    assert {"tasks", "attempts", "transfers", "workers"} <= names & DERIVED.keys()


def test_its_answers_are_the_same(folder: Path) -> None:
    """The record is whole, and tasks end as version 0.1 reported them."""
    run = dask_strata.open_run(folder)
    check = run.check()
    assert check.ok
    assert sum(finding.counted for finding in check.findings) == 3
    assert run.manifest.name == "older"
    assert run.state == "complete"
    failed = run.task("failed")
    assert [a["outcome"] for a in failed.attempts] == ["retried", "erred"]
    assert run.task(("part", 3)).state == "memory"
