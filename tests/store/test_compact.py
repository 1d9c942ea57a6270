"""Compaction: no row is lost, and nothing is deleted before it is verified."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.errors import StrataError
from dask_strata.store import compact as compact_module
from dask_strata.store.compact import compact
from dask_strata.store.finalise import keys, tables
from tests.support.synthetic import Process, contents, new_run, small_run


def test_compaction_keeps_every_row(tmp_path: Path) -> None:
    """A compacted run has the same rows, in Parquet that plain pyarrow reads, and no segments."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)
    done = compact(folder)
    assert contents(folder) == before
    ends = len(before["processes"])  # a process has a row for its start and one for its end
    assert done.rows == sum(map(len, before.values())) + ends
    assert not list((folder / "segments").iterdir())
    assert len(pq.read_table(folder / "parquet" / "scheduler_transitions")) == 6
    again = contents(folder)
    compact(folder)
    assert contents(folder) == again == before


def test_rows_written_after_a_compaction_are_read_once(tmp_path: Path) -> None:
    """Rows after a compaction are read from the segment, once, together with those in Parquet."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("job", [{"name": "a", "value": "1"}])
    compact(folder)
    assert list((folder / "segments").iterdir()), (
        "the segment of a process that may still write is kept"
    )
    process.write("job", [{"name": "b", "value": "2"}])
    process.end()
    names = open_run(folder)["job"].to_arrow()["name"].to_pylist()
    assert names == ["a", "b"]
    compact(folder)
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["a", "b"]
    assert not list((folder / "segments").iterdir())


def many_keys(folder: Path, n: int) -> Path:
    """Write a run with n transitions, each of another key."""
    process = Process(new_run(folder), "scheduler-1")
    transitions = [
        {"time": i, "key": f"inc-{hash((i, 1)):020x}", "finish_state": "memory"} for i in range(n)
    ]
    process.write("scheduler_transitions", transitions)
    process.end()
    return folder


@pytest.mark.parametrize("kept_bytes", [0, 50_000, 1 << 30], ids=["no rows", "some", "all"])
def test_each_text_of_a_key_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """Tables have ids of keys, however many row groups they have; one table has the texts.

    It does not matter how many rows are kept in memory until they are read back.
    """
    folder = many_keys(tmp_path / "r", 2000)
    before = contents(folder)
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 100)
    monkeypatch.setattr(tables, "_KEPT_BYTES", kept_bytes)
    compact(folder)
    path = folder / "parquet" / "scheduler_transitions" / "part-0.parquet"
    assert pq.read_metadata(path).num_row_groups == 20
    assert pq.read_schema(path).field("key_id").type == pa.int32()
    assert "key" not in pq.read_schema(path).names
    texts = pq.read_table(folder / "parquet" / "keys")["key"].to_pylist()
    assert texts == sorted({row["key"] for row in before["scheduler_transitions"]})
    assert contents(folder) == before


@pytest.mark.parametrize("step", ["write_part", "_swap", "_delete_segments"])
def test_an_interrupted_compaction_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Interrupted at any step, the run reads the same as before, and compacts later."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compact_module, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            compact(folder)
    assert contents(folder) == before
    compact(folder)
    assert contents(folder) == before
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == [
        "parquet",
        "run.json",
        "segments",
    ]


def test_a_compaction_interrupted_between_two_renames_is_found(tmp_path: Path) -> None:
    """Interrupted after the old Parquet was renamed, before the new one: nothing is lost."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    before = contents(folder)
    (folder / "parquet").rename(folder / "parquet.old")
    assert contents(folder) == before
    compact(folder)
    assert contents(folder) == before
    assert (folder / "parquet").is_dir()


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20], ids=["from files", "from memory"])
def test_parquet_that_differs_from_the_segments_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    """If the Parquet differs from the segments, compaction fails and deletes nothing."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)
    with monkeypatch.context() as patch:
        write = pq.ParquetWriter.write_table

        def shorter(writer: pq.ParquetWriter, rows: pa.Table, *args: Any) -> None:
            write(writer, rows.slice(1), *args)

        patch.setattr(pq.ParquetWriter, "write_table", shorter)
        patch.setattr(tables, "_KEPT_BYTES", kept_bytes)
        with pytest.raises(StrataError, match=r"The Parquet of .* is not equal"):
            compact(folder)
    assert contents(folder) == before


def test_the_segment_of_a_process_on_another_host_is_kept(tmp_path: Path) -> None:
    """A process on another host may be alive although it wrote nothing for long."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "worker-1")
    path = folder / "segments" / "worker-1.seg"
    os.utime(path, (0, 0))
    assert compact(folder).segments_kept == 1
    process.write("job", [{"name": "later", "value": "1"}])
    process.end()
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["later"]


def test_keys_with_the_same_hash_keep_their_own_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two keys have the same hash, compaction begins again with another salt."""
    folder = many_keys(tmp_path / "r", 50)
    before = contents(folder)
    hashes_of, salts = keys.hashes_of, []

    def same(texts: Any, types: Any, salt: int) -> Any:
        salts.append(salt)
        found = hashes_of(texts, types, salt)
        return found if salt else found * 0

    monkeypatch.setattr(keys, "hashes_of", same)
    compact(folder)
    assert set(salts) == {0, 1}
    assert contents(folder) == before
    assert not list(folder.glob(".parquet-*"))


def test_rows_read_back_are_equal_also_if_their_dictionaries_are_not() -> None:
    """Texts are compared, not their places in a dictionary; a text that differs is found."""
    rows = pa.table({"state": pa.array(["a", "b", None, "a"]).dictionary_encode()})
    texts = pa.array(["b", "a"])
    for places, equal in (([1, 0, None, 1], True), ([1, 0, None, 0], False)):
        other = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), texts)
        assert tables._equal(pa.table({"state": other}), rows) is equal
