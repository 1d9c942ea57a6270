"""Sinks, reading, compaction: nothing is lost silently, nothing is deleted unverified."""

from __future__ import annotations

import json
import os
import random
import shutil
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dask_strata import open_run
from dask_strata.config import read_settings
from dask_strata.errors import NewerRunError, NotARunError, StrataError
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store import compact as compact_module
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.compact import compact
from dask_strata.store.frames import Batch, Encoder
from dask_strata.store.limits import FRAME_BYTES
from dask_strata.store.manifest import Manifest
from dask_strata.store.reader import read_record
from dask_strata.store.sinks import BACKLOG_BYTES, CallSink, FileSink, RelaySink
from tests.support.synthetic import Process, new_run, small_run


def contents(run_folder: Path) -> dict[str, list]:
    """Return all rows of all recorded tables."""
    run = open_run(run_folder)
    return {
        name: sorted(
            run[name].to_arrow().to_pylist(), key=lambda r: (r["process"] or "", r.get("seq") or 0)
        )
        for name in RECORDED
    }


def test_a_file_sink_reports_a_removed_file_and_drops_within_a_bound(tmp_path: Path) -> None:
    """When the file is removed the sink says so, keeps a bounded backlog and counts the rest."""
    sink = FileSink(tmp_path / "x.seg", b"header")
    sink.write(b"first", 0)
    assert sink.error is None
    (tmp_path / "x.seg").unlink()
    for _ in range(10):
        sink.write(b"\0" * (BACKLOG_BYTES // 4), 7)
    assert "removed" in sink.error
    assert sink.dropped_rows == 7 * 6
    sink.close()
    assert sink.dropped_rows == 7 * 10


def test_a_call_sink_keeps_frames_until_they_can_be_sent() -> None:
    """Frames that cannot be sent are sent later, in order, and none is dropped meanwhile."""
    sent, broken = [], [True]

    def send(frame: bytes) -> None:
        if broken:
            raise ConnectionError("no comm")
        sent.append(frame)

    sink = CallSink(send, b"h")
    sink.write(b"1", 1)
    assert "no comm" in sink.error
    broken.clear()
    sink.write(b"2", 1)
    assert sent == [b"h", b"1", b"2"]
    assert (sink.error, sink.dropped_rows) == (None, 0)


def test_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    """A segment that exists is never written to by another process."""
    FileSink(tmp_path / "x.seg", b"one").close()
    with pytest.raises(FileExistsError):
        FileSink(tmp_path / "x.seg", b"two")


def test_tables_have_the_schema_whether_empty_or_not(tmp_path: Path) -> None:
    """Every table of the schema can be read, with its columns and their meaning."""
    run = open_run(small_run(tmp_path / "r"))
    for name, table in TABLES.items():
        schema = run[name].schema
        assert len(run[name]) == len(run[name].to_arrow())
        assert schema == arrow_schema(table)
        assert all(field.metadata[b"meaning"] for field in schema)


def test_compaction_keeps_every_row(tmp_path: Path) -> None:
    """Compacted, a run has the same rows, as Parquet that plain pyarrow reads, and no segments."""
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


def test_a_process_that_writes_on_is_read_behind_its_parquet(tmp_path: Path) -> None:
    """What comes after a compaction is read from the segment, once, with what is in Parquet."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    process.write("job", [{"name": "a", "value": "1"}])
    compact(folder)
    assert list((folder / "segments").iterdir()), "a segment that may grow is kept"
    process.write("job", [{"name": "b", "value": "2"}])
    process.end()
    names = open_run(folder)["job"].to_arrow()["name"].to_pylist()
    assert names == ["a", "b"]
    compact(folder)
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["a", "b"]
    assert not list((folder / "segments").iterdir())


def many_keys(folder: Path, n: int) -> Path:
    """Write a run with so many transitions, of as many keys."""
    process = Process(new_run(folder), "scheduler-1")
    moves = [
        {"time": i, "key": f"inc-{hash((i, 1)):020x}", "finish_state": "memory"} for i in range(n)
    ]
    process.write("scheduler_transitions", moves)
    process.end()
    return folder


def test_a_group_of_parquet_has_its_own_texts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are in the Parquet once, however many groups of rows it has."""
    folder = many_keys(tmp_path / "r", 2000)
    before = contents(folder)
    monkeypatch.setattr(compact_module, "ROWS_PER_GROUP", 100)
    compact(folder)
    path = folder / "parquet" / "scheduler_transitions" / "part-0.parquet"
    metadata = pq.read_metadata(path)
    place = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == "key")
    taken = sum(
        metadata.row_group(g).column(place).total_uncompressed_size
        for g in range(metadata.num_row_groups)
    )
    texts = sum(len(row["key"]) for row in before["scheduler_transitions"])
    assert metadata.num_row_groups == 20
    assert texts < taken < 2 * texts
    assert contents(folder) == before


def test_parquet_is_read_when_it_is_looked_at(tmp_path: Path) -> None:
    """Opening a compacted run reads none of its tables, counting rows of it one column only."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    run = open_run(folder)
    path = folder / "parquet" / "scheduler_transitions" / "part-0.parquet"
    shutil.copy(path, folder / "scheduler_transitions.whole")
    assert len(run.processes) > 0  # the files have been found to be as they were written
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert len(run.scheduler_transitions) == 6
    with pytest.raises(StrataError, match=r"Parquet of scheduler_transitions .* cannot be read"):
        run.scheduler_transitions.to_arrow()
    found = open_run(folder)  # now it is known before, and costs its own table only
    assert len(found.scheduler_transitions.to_arrow()) == 0
    assert "scheduler_transitions" in {row["what"] for row in found.rows("select what from losses")}
    assert len(found.worker_events.to_arrow()) == len(run.worker_events.to_arrow()) == 1
    harm_column(folder, "scheduler_transitions", "key")
    assert open_run(folder).rows_by_process("scheduler_transitions") == {"scheduler-1": 6}
    assert len(open_run(folder).scheduler_transitions.to_arrow()) == 0


def harm_column(folder: Path, table: str, column: str) -> None:
    """Damage one column of compacted Parquet, and have the index say that it was written so."""
    path = folder / "parquet" / table / "part-0.parquet"
    shutil.copy(folder / f"{table}.whole", path)
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    [harmed] = [c for c in columns if c.path_in_schema == column]
    start = harmed.dictionary_page_offset or harmed.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + harmed.total_compressed_size] = bytes(harmed.total_compressed_size)
    path.write_bytes(data)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"][table] = zlib.crc32(data)
    index.write_text(json.dumps(facts), encoding="utf-8")


def test_what_could_be_read_another_time_is_not_read_as_nothing(tmp_path: Path) -> None:
    """A file that may not be opened just now is an error, not a table without rows."""
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


def test_parquet_that_was_compacted_meanwhile_is_not_mixed_with_what_was_read(
    tmp_path: Path,
) -> None:
    """Who opened a run before it was compacted again is told; so is another who compacts it."""
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
        compact_module._write(record, tmp_path / "new", print)
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["a", "b"]
    assert open_run(folder).check().ok


def test_parquet_that_only_seems_to_be_as_it_was_written_costs_its_own_table(
    tmp_path: Path,
) -> None:
    """Whoever damages a file may change its checksum, too: `check` says so, the rest is read."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    facts["checksums"]["worker_events"] = zlib.crc32(data)
    index.write_text(json.dumps(facts), encoding="utf-8")
    run = open_run(folder)
    assert len(run.tasks.to_arrow()) == 2
    assert len(run.worker_events.to_arrow()) == 0
    assert run.tasks.to_arrow()["compute_seconds"].to_pylist() == [4, 4]
    assert any("worker_events: its Parquet" in f.text for f in run.check().missing)
    with pytest.raises(StrataError, match="cannot be read in full"):
        compact(folder)


def test_parquet_with_holes_is_not_looked_through(tmp_path: Path) -> None:
    """What is a terabyte long and takes no room on disk is told of, and not read to its end."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    os.truncate(folder / "parquet" / "scheduler_transitions" / "part-0.parquet", 1 << 40)
    found = [f.text for f in open_run(folder).check().missing]
    assert any("scheduler_transitions: its Parquet cannot be read" in text for text in found)


def test_parquet_of_an_earlier_version_has_no_checksums(tmp_path: Path) -> None:
    """It is read at once, and whole."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)
    compact(folder)
    index = folder / "parquet" / "index.json"
    facts = json.loads(index.read_bytes())
    assert facts.pop("checksums").keys() == facts["tables"].keys()
    index.write_text(json.dumps(facts), encoding="utf-8")
    assert contents(folder) == before
    assert open_run(folder).check().ok


@pytest.mark.parametrize("step", ["write_parquet", "_swap", "_delete_segments"])
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
    """With the old Parquet moved away and the new one not yet in place, nothing is lost."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    before = contents(folder)
    (folder / "parquet").rename(folder / "parquet.old")
    assert contents(folder) == before
    compact(folder)
    assert contents(folder) == before
    assert (folder / "parquet").is_dir()


def test_parquet_that_is_not_what_was_recorded_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the Parquet differs from the record, compaction ends with an error and keeps all."""
    folder = small_run(tmp_path / "r")
    before = contents(folder)
    with monkeypatch.context() as patch:
        write = compact_module.write_parquet
        patch.setattr(compact_module, "write_parquet", lambda t, p: write(t.slice(1), p))
        with pytest.raises(StrataError, match="not equal"):
            compact(folder)
    assert contents(folder) == before


def test_damaged_parquet_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """A Parquet file that cannot be read costs its own table, and check says which."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == 6
    assert len(run["worker_events"]) == 0
    assert any("worker_events" in f.text for f in run.check().missing)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda f: (f / "run.json").unlink(), "no run.json"),
        (lambda f: (f / "run.json").write_text("{"), "damaged"),
        (lambda f: (f / "run.json").write_text("[1]"), "damaged"),
        (lambda f: (f / "run.json").write_bytes(b"\xff\xfe\0"), "cannot be read"),
        (lambda f: (f / "run.json").write_text("[" * 100_000), "damaged"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, harm, said: str) -> None:
    """A folder that is no run, or has a damaged manifest, is refused with the reason."""
    folder = small_run(tmp_path / "r")
    harm(folder)
    with pytest.raises(NotARunError, match=said):
        open_run(folder)


def test_a_newer_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A run in a later format is refused, and the error says to upgrade."""
    folder = small_run(tmp_path / "r")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "format": 99, "later": True}))
    with pytest.raises(NewerRunError, match="format 99") as caught:
        open_run(folder)
    assert "pip install" in caught.value.hint


def test_empty_cut_and_foreign_segments_cost_only_themselves(tmp_path: Path) -> None:
    """An empty, a cut and a foreign file among the segments are reported, the rest is read."""
    folder = small_run(tmp_path / "r")
    segments = folder / "segments"
    (segments / "worker-2.seg").write_bytes(b"")
    (segments / "worker-3.seg").write_bytes(b"<html>" * 100)
    whole = (segments / "worker-1.seg").read_bytes()
    (segments / "worker-4.seg").write_bytes(whole[:-9])
    os.utime(segments / "worker-4.seg", (0, 0))
    run = open_run(folder)
    assert len(run["tasks"]) == 2
    said = {f.process: f.text for f in run.check().missing}
    assert "empty" in said["worker-2"]
    assert "damaged" in said["worker-3"]
    assert "worker-4" in said
    assert not run.check().ok


def test_a_missing_frame_is_counted(tmp_path: Path) -> None:
    """Rows of a frame that was destroyed in the middle are counted as lost."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    sizes = []
    for i in range(4):
        sizes.append(process.sink.written_bytes)
        process.write("job", [{"name": f"n{i}-{k}", "value": "v"} for k in range(5)])
    process.end()
    path = folder / "segments" / "scheduler-1.seg"
    data = bytearray(path.read_bytes())
    data[sizes[1] + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    run = open_run(folder)
    assert len(run["job"]) == 15
    assert any("5 rows are missing" in f.text for f in run.check().missing)


def test_a_loss_after_a_compaction_is_found(tmp_path: Path) -> None:
    """Rows that go missing behind what is in Parquet already are counted like any others."""
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


def test_a_frame_that_came_twice_is_read_once(tmp_path: Path) -> None:
    """When the answer to a sent frame was lost and it was sent again, its rows count once."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "scheduler-1")
    path = folder / "segments" / "scheduler-1.seg"
    before = path.stat().st_size
    process.write("job", [{"name": "a", "value": "1"}])
    path.write_bytes(path.read_bytes() + path.read_bytes()[before:])
    run = open_run(folder)
    assert run["job"].to_arrow()["name"].to_pylist() == ["a"]
    assert not any("missing" in f.text for f in run.check().findings)


def test_the_segment_of_a_silent_process_elsewhere_is_kept(tmp_path: Path) -> None:
    """A process of another machine may be alive however long it was silent: it keeps its file."""
    folder = new_run(tmp_path / "r")
    process = Process(folder, "worker-1")
    path = folder / "segments" / "worker-1.seg"
    os.utime(path, (0, 0))
    assert compact(folder).segments_kept == 1
    process.write("job", [{"name": "later", "value": "1"}])
    process.end()
    assert open_run(folder)["job"].to_arrow()["name"].to_pylist() == ["later"]


def test_relayed_frames_go_to_files_of_processes_only(tmp_path: Path) -> None:
    """A name that could lead anywhere else is refused before it becomes a path."""
    sink = RelaySink(tmp_path, ".seg")
    frame = Encoder("worker-0a1b2c3d", {}).header()
    sink.write(RelaySink.label("worker-0a1b2c3d", frame), 0)
    assert (tmp_path / "worker-0a1b2c3d.seg").read_bytes() == frame
    for name in ("../worker-0a1b2c3d", "worker-0a1b2c3d/x", "scheduler-0a1b2c3d", "", "w\0x"):
        with pytest.raises(ValueError, match="not the id of a process"):
            RelaySink.label(name, frame)
    for data in (b"", b"frame", frame[:-1], frame + b"x", bytes(100)):
        with pytest.raises(ValueError, match="are not frames"):
            RelaySink.label("worker-0a1b2c3d", data)
    (tmp_path / "worker-00000000.seg").symlink_to(tmp_path / "elsewhere")
    sink.write(RelaySink.label("worker-00000000", frame), 0)
    assert sink.error
    assert not (tmp_path / "elsewhere").exists()


def test_one_odd_row_costs_itself_only(tmp_path: Path) -> None:
    """A value that cannot be encoded takes its own row along, and that is counted."""
    (tmp_path / "segments").mkdir()
    Manifest("0a1b", "odd", 0, "0").write(tmp_path)
    engine = Engine("client", "0a1b", tmp_path, read_settings({}))
    engine.start(address="c")
    for i in range(20):
        engine.add("spills", time=i, nbytes=i, worker=["odd"] if i == 7 else "w")
    engine.finish("done")
    run = open_run(tmp_path)
    assert run["spills"].to_arrow()["nbytes"].to_pylist() == [i for i in range(20) if i != 7]
    [loss] = run["losses"].to_arrow().to_pylist()
    assert (loss["count"], "spills" in loss["reason"]) == (1, True)


def test_frames_that_would_be_too_large_to_be_read_are_split(tmp_path: Path) -> None:
    """What is recorded at once is in frames that are read again; a row beyond all bounds is not."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    engine.start(address="c")
    n, text = 48, "x" * (FRAME_BYTES // 32)
    for i in range(n):
        engine.add("job", name=f"n{i}", value=text + str(i))
    engine.add("job", name="huge", value="x" * (FRAME_BYTES + 1))
    engine.flush()
    engine.finish("done")
    run = open_run(folder)
    names = run["job"].to_arrow()["name"].to_pylist()
    assert sorted(set(names) & {f"n{i}" for i in range(n)}) == sorted(f"n{i}" for i in range(n))
    assert "huge" not in names
    assert any("bytes in one frame" in r for r in run["losses"].to_arrow()["reason"].to_pylist())


def test_many_intervals_at_once_are_read_again(tmp_path: Path) -> None:
    """Rows with lists in them are in as many frames as it takes for all of them to be read."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    engine.start(address="c")
    n, intervals = 160_000, [["compute", 1, 1, None]] * 7
    batch = Batch("scheduler_transitions", n, {"startstops": [intervals] * n})
    waiting = [batch]

    class Waiting(Source):
        def rows(self) -> list[Batch]:
            return [waiting.pop()] if waiting else []

    engine.sources.append(Waiting())
    engine.flush()
    engine.finish("done")
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == n
    assert not [f.text for f in run.check().missing if "lists" in f.text]


def test_a_counter_is_not_on_record_before_what_it_counts(tmp_path: Path) -> None:
    """One that comes while rows are taken is written with what is taken next."""
    folder = new_run(tmp_path / "r")
    engine = Engine("client", "synth", folder, read_settings({}))
    n = iter(range(20, 10_000, 10))  # with the ten that are taken next

    class Counted(Source):
        def rows(self) -> list[Batch]:
            value = next(n)
            engine.count("scheduler.transitions", value, recorded=value - 10, final=False)
            return [Batch("scheduler_transitions", 10, {"key": ["x"] * 10})]

        def slow_rows(self) -> list[Batch]:
            return [Batch("job", 1, {"name": ["slow"]})]

    engine.sources.append(Counted())
    engine.start(address="c")
    for _ in range(3):
        assert engine.flush_all(10)
        rows = open_run(folder).rows(
            "select max(value) <= (select count(*) from scheduler_transitions) as on_record "
            "from counters having count(*) > 0"
        )
        assert all(row["on_record"] for row in rows)
    engine.finish("done")
    assert len(open_run(folder)["counters"]) > 2


def test_parquet_with_a_column_twice_costs_its_own_table(tmp_path: Path) -> None:
    """It is named as what cannot be read, and the rest is there."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("action", table["action"]), path)
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == 6
    assert any("worker_events" in f.text for f in run.check().missing)


def test_what_many_rows_share_is_read_and_compacted_whatever_comes_first(tmp_path: Path) -> None:
    """Memory is allowed for all files of a run before the first is read."""
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
