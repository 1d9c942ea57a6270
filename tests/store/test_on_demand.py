"""Parquet that is read on demand: only with a matching checksum, and never mixed up."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.errors import StrataError
from dask_strata.store import compact as compact_module
from dask_strata.store.compact import compact
from dask_strata.store.reader import read_record
from tests.support.synthetic import Process, contents, new_run, small_run


def test_parquet_is_read_on_demand(tmp_path: Path) -> None:
    """Opening a compacted run reads no table; counting rows by process reads one column only."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    run = open_run(folder)
    path = folder / "parquet" / "scheduler_transitions" / "part-0.parquet"
    shutil.copy(path, folder / "scheduler_transitions.whole")
    assert len(run.processes) > 0  # the checksums have been verified
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert len(run.scheduler_transitions) == 6
    with pytest.raises(StrataError, match=r"Parquet of scheduler_transitions .* cannot be read"):
        run.scheduler_transitions.to_arrow()
    found = open_run(folder)  # its checksum differs: the table is empty, the others are read
    assert len(found.scheduler_transitions.to_arrow()) == 0
    assert "scheduler_transitions" in {row["what"] for row in found.rows("select what from losses")}
    assert len(found.worker_events.to_arrow()) == len(run.worker_events.to_arrow()) == 1
    damage_column(folder, "scheduler_transitions", "stimulus_id")
    assert open_run(folder).rows_by_process("scheduler_transitions") == {"scheduler-1": 6}
    assert len(open_run(folder).scheduler_transitions.to_arrow()) == 0


def damage_column(folder: Path, table: str, column: str) -> None:
    """Damage one column of compacted Parquet, and put the new checksum into the index."""
    path = folder / "parquet" / table / "part-0.parquet"
    shutil.copy(folder / f"{table}.whole", path)
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    [damaged] = [c for c in columns if c.path_in_schema == column]
    start = damaged.dictionary_page_offset or damaged.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + damaged.total_compressed_size] = bytes(damaged.total_compressed_size)
    path.write_bytes(data)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"][table] = [zlib.crc32(data)]
    index.write_text(json.dumps(facts), encoding="utf-8")


def test_a_temporarily_unreadable_table_is_an_error(tmp_path: Path) -> None:
    """A table that is missing for the moment is an error, not an empty table."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    run = open_run(folder)
    assert len(run.processes) > 0
    path = folder / "parquet" / "scheduler_transitions"
    path.rename(folder / "elsewhere")
    with pytest.raises(StrataError, match=r"scheduler_transitions .* is missing"):
        run.rows("select * from tasks")
    (folder / "elsewhere").rename(path)
    assert len(run.rows("select * from tasks")) == 2


def test_parquet_that_a_compaction_replaced_is_an_error(
    tmp_path: Path,
) -> None:
    """A run that was opened before it was compacted again is not read further, nor compacted."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("job", [{"name": "a", "value": "1"}])
    compact(folder)
    process.write("job", [{"name": "b", "value": "2"}])
    process.end()
    run = open_run(folder)
    record = read_record(folder, damaged=False)
    assert len(run["job"]) == record.rows["job"] == 2
    compact(folder)
    with pytest.raises(StrataError, match="replaced since the run was opened") as raised:
        run["job"].to_arrow()
    assert "open it again" in raised.value.hint
    with pytest.raises(StrataError, match="replaced since the run was opened"):
        compact_module._write(record, compact_module.Received(tmp_path / "new"), print, None, 1000)
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["a", "b"]
    assert open_run(folder).check().ok


def test_damaged_parquet_with_a_matching_checksum_costs_its_own_table(
    tmp_path: Path,
) -> None:
    """A damaged file whose checksum was adapted: `check` reports it, and the rest is read."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"]["worker_events"] = [zlib.crc32(data)]
    index.write_text(json.dumps(facts), encoding="utf-8")
    run = open_run(folder)
    assert len(run.tasks.to_arrow()) == 2
    assert len(run.worker_events.to_arrow()) == 0
    assert run.tasks.to_arrow()["compute_seconds"].to_pylist() == [4, 4]
    assert any("worker_events: its Parquet" in f.text for f in run.check().missing)
    with pytest.raises(StrataError, match="cannot be read in full"):
        compact(folder)


def test_parquet_with_holes_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A file of a terabyte that takes no room on disk is reported, and not read to its end."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    os.truncate(folder / "parquet" / "scheduler_transitions" / "part-0.parquet", 1 << 40)
    found = [f.text for f in open_run(folder).check().missing]
    assert any("scheduler_transitions: its Parquet cannot be read" in text for text in found)


def test_parquet_without_checksums_is_read_at_once(tmp_path: Path) -> None:
    """Parquet of an earlier version, which wrote no checksums, is read in full."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)
    compact(folder)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    assert facts.pop("checksums").keys() == {*facts["tables"], "keys"}
    index.write_text(json.dumps(facts), encoding="utf-8")
    assert contents(folder) == before
    assert open_run(folder).check().ok
