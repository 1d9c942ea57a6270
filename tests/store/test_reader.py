"""Reading a run: damage is reported and counted, and the rest is read."""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.schema import TABLES
from dask_strata.schema.values import LOST_FRAME
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.compact import compact
from tests.support.synthetic import Process, new_run, small_run


def test_tables_have_the_schema_whether_empty_or_not(tmp_path: Path) -> None:
    """Each table of the schema can be read, with its columns and their meaning, also if empty."""
    run = open_run(small_run(tmp_path / "r"))
    for name, table in TABLES.items():
        schema = run[name].schema
        assert len(run[name]) == len(run[name].to_arrow())
        assert schema == arrow_schema(table)
        assert all(field.metadata[b"meaning"] for field in schema)


def test_empty_cut_and_foreign_segments_cost_only_themselves(tmp_path: Path) -> None:
    """An empty, a cut and a foreign file among the segments are reported, the rest is read."""
    folder = small_run(tmp_path / "r")
    segments = folder / "segments"
    (segments / "worker-2.seg").write_bytes(b"")
    (segments / "worker-3.seg").write_bytes(b"<html>" * 100)
    Process(folder, "worker-4").end()
    whole = (segments / "worker-4.seg").read_bytes()
    (segments / "worker-4.seg").write_bytes(whole[:-9])
    os.utime(segments / "worker-4.seg", (0, 0))
    run = open_run(folder)
    assert len(run["tasks"]) == 2
    found = {f.process: f.text for f in run.check().missing}
    assert "empty" in found["worker-2"]
    assert "damaged" in found["worker-3"]
    assert "worker-4" in found
    assert not run.check().ok


def run_with_a_damaged_frame(folder: Path) -> Path:
    """Make a run with four frames of five rows each; a byte in the second one is wrong."""
    process = Process(new_run(folder), "scheduler-1")
    offsets = []
    for i in range(4):
        offsets.append(process.sink.written_bytes)
        process.write("job", [{"name": f"n{i}-{k}", "value": "v"} for k in range(5)])
    process.end()
    path = folder / "segments" / "scheduler-1.seg"
    data = bytearray(path.read_bytes())
    data[offsets[1] + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    return folder


def test_a_missing_frame_is_counted(tmp_path: Path) -> None:
    """Rows of a frame that was destroyed in the middle are counted as lost."""
    run = open_run(run_with_a_damaged_frame(tmp_path / "r"))
    assert len(run["job"]) == 15
    assert any("5 rows are missing" in f.text for f in run.check().missing)


def test_losses_of_a_damaged_segment_survive_its_compaction(tmp_path: Path) -> None:
    """The damage and the missing frame have one row of `losses` each, and one finding each."""
    folder = run_with_a_damaged_frame(tmp_path / "r")
    losses = "select what, count, reason, process from losses order by what"
    before, found = open_run(folder).rows(losses), open_run(folder).check().missing
    assert [(row["what"], row["count"]) for row in before] == [("frame", 5), ("segment", None)]
    assert len(found) == 2
    for _ in range(2):
        compact(folder)
        assert open_run(folder).rows(losses) == before
        assert open_run(folder).check().missing == found


def test_a_missing_frame_in_a_run_of_version_0_1_is_reported_once(tmp_path: Path) -> None:
    """Version 0.1 compacted such a loss with other values: `check` has one finding all the same."""
    folder = run_with_a_damaged_frame(tmp_path / "r")
    found = open_run(folder).check().missing
    compact(folder)
    path = folder / "parquet" / "losses" / "part-0.parquet"
    table = pq.read_table(path)
    then = {"what": "rows", "reason": "a frame is missing"}
    rows = [{**row, **then} if row["what"] == LOST_FRAME else row for row in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"]["losses"] = zlib.crc32(path.read_bytes())
    index.write_text(json.dumps(facts), encoding="utf-8")
    run = open_run(folder)
    assert {row["what"] for row in run.rows("select what from losses")} == {"rows", "segment"}
    assert run.check().missing == found


def test_a_missing_frame_after_a_compaction_is_counted(tmp_path: Path) -> None:
    """Rows of a frame that is missing from the part after the compaction are counted as lost."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("job", [{"name": "a", "value": "1"}])
    compact(folder)
    path = folder / "segments" / "scheduler-1.seg"
    before = path.stat().st_size
    process.write("job", [{"name": f"lost-{i}"} for i in range(7)])
    after = path.stat().st_size
    process.write("job", [{"name": "b", "value": "2"}])
    process.end()
    data = path.read_bytes()
    path.write_bytes(data[:before] + data[after:])
    run = open_run(folder)
    assert run["job"].to_arrow()["name"].to_pylist() == ["a", "b"]
    assert any("7 rows are missing" in f.text for f in run.check().missing)


def test_a_duplicate_frame_is_read_once(tmp_path: Path) -> None:
    """When a frame was sent again because its reply was lost, its rows count once."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    path = folder / "segments" / "scheduler-1.seg"
    before = path.stat().st_size
    process.write("job", [{"name": "a", "value": "1"}])
    path.write_bytes(path.read_bytes() + path.read_bytes()[before:])
    run = open_run(folder)
    assert run["job"].to_arrow()["name"].to_pylist() == ["a"]
    assert not any("missing" in f.text for f in run.check().findings)


@pytest.mark.release
@pytest.mark.long
def test_the_budget_includes_all_files_before_the_first_is_read(tmp_path: Path) -> None:
    """The order of the files does not matter: repeated texts fit in the budget of the whole run."""
    folder = new_run(tmp_path / "r")
    first = Process(folder, "a-1")
    first.write("job", [{"name": f"n{i}", "value": "x" * 20_000} for i in range(15_000)])
    first.end()
    second = Process(folder, "b-1")
    text = random.Random(0).randbytes(1 << 20).hex()
    second.write("job", [{"name": "noise", "value": text}])
    second.end()
    run = open_run(folder)
    assert (len(run["job"]), len(run["losses"])) == (15_001, 0)
    compact(folder)
    assert len(open_run(folder)["job"]) == 15_001
