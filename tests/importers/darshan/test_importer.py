"""Darshan's logs in a run: what tasks read and wrote, compared with what they noted themselves."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client  # noqa: TC002  it is imported anyway

from dask_strata import open_run, record
from dask_strata.analysis.io import select_io, summarize_io
from dask_strata.analysis.map import metadata_map
from dask_strata.errors import StrataError, UsageError
from dask_strata.importers.darshan import counters_child
from dask_strata.importers.darshan.counters import Wanted, read_counters
from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import open_log
from dask_strata.importers.darshan.survey import Survey, survey
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from dask_strata.store.compact import compact
from dask_strata.store.manifest import Manifest
from dask_strata.store.reader import read_record
from dask_strata.store.segments import segment_state
from tests.conftest import wait_until
from tests.support.darshan_files import SECOND, Log, Operation, TracedFile
from tests.support.darshan_runs import LAYOUTS, darshan_run, logs, notes, ns, truth
from tests.support.synthetic import T0, Process, new_run, small_run

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"

#: Tasks of the recorded runs whose own thread did all of their reading and writing by plain
#: system calls: NumPy goes through C's FILE*, which is not traced; Arrow has threads of its own.
PLAIN = ("read_text", "read_h5", "write_h5", "read_gz", "write_gz", "read_root", "write_root")

#: What a task read of its thread's counters to know them.
OWN_READING = 400


def one(run: Run, query: str) -> Any:
    (row,) = run.sql(query).to_arrow().to_pylist()
    return next(iter(row.values()))


def answers(run: Run, query: str) -> list[dict[str, Any]]:
    return run.sql(query).to_arrow().to_pylist()


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def joined(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = darshan_run(tmp_path_factory.mktemp("joined") / "run", layout)
    added = add_files(folder, [logs(layout)])
    assert (added.files, added.troubles, added.unknown) == (6, [], [])
    return open_run(folder)


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = darshan_run(tmp_path_factory.mktemp("threaded") / "run")
    add_files(folder, [logs("dxt_v2_threads")])
    return open_run(folder)


def test_logs_are_tied_to_their_processes(joined: Run) -> None:
    tied = answers(joined, "from darshan_logs where tied_by is not null order by pid")
    assert [row["process"] for row in tied] == [f"worker-{row['pid']}" for row in tied]
    assert {row["program"] for row in tied} == {"spawn_main"}
    assert all(row["tied_by"].startswith("pid, host, time") for row in tied)
    others = answers(joined, "from darshan_logs where tied_by is null")
    assert {row["program"] for row in others} == {"dask worker", "resource_tracker"}
    assert all(row["process"] is None for row in others)


def test_the_clock_is_found_as_beacons_tell_it(joined: Run, layout: str) -> None:
    for row in answers(joined, "from darshan_logs where tied_by is not null"):
        path = logs(layout) / row["file"]
        log = open_log(path)
        known = log.read_names()
        beacon = next(i for i, name in known.items() if "beacon" in name)
        told = {
            n["offset"]: (n["t0"] + n["t1"]) / 2
            for n in notes(layout, row["pid"])
            if n["ev"] == "beacon"
        }
        shifts = []
        for ops in Trace(log, "DXT_POSIX", known):
            mine = ops.write & (ops.file == np.uint64(beacon))
            middle = (ops.start[mine] + ops.stop[mine]) / 2 + log.start / 1e9
            shifts += [
                told[o] - t
                for o, t in zip(ops.offset[mine].tolist(), middle.tolist(), strict=True)
                if o in told
            ]
        assert row["clock_shift_seconds"] == pytest.approx(statistics.median(shifts), abs=1e-3)
        assert row["clock_uncertainty_seconds"] < 1e-3


def test_operations_belong_to_the_tasks_that_did_them(threaded: Run) -> None:
    own = truth("dxt_v2_threads")
    rows = {row["key"]: row for row in answers(threaded, "from tasks where io_seconds is not null")}
    plain = {key: facts["io"] for key, facts in own.items() if key.startswith(PLAIN)}
    assert len(plain) > 20
    same = 0
    for key, counted in plain.items():
        assert rows[key]["io_write_bytes"] == counted["wchar"], key
        more = counted["rchar"] - rows[key]["io_read_bytes"]
        assert more >= 0, key
        same += more <= OWN_READING
    # The first ones read modules of Python's, which Darshan was told to leave out.
    assert same >= len(plain) - 8


def test_most_operations_have_one_task(joined: Run, layout: str) -> None:
    io = summarize_io(joined)
    assert io is not None
    by = {how: n for how, (n, _) in io.attributed.items()}
    if layout == "dxt_v1_release":  # without threads, by time alone
        assert set(by) == {"alone", "ambiguous", "outside"}
        assert 0.2 < (io.certain or 0) < 0.45
        ambiguous = answers(
            joined, "select distinct n_candidates from io_segments where attributed_by='ambiguous'"
        )
        assert {row["n_candidates"] for row in ambiguous} == {2}
        return
    assert (io.certain or 0) > 0.87
    # Threads that run tasks do nothing else.
    assert (
        one(
            joined,
            """
            select avg((attributed_by = 'thread')::int) from io_segments
            where thread in (select distinct thread from executions)
            """,
        )
        > 0.99
    )
    assert (
        one(joined, "select count(*) from io_segments where attempt is null and key is not null")
        == 0
    )


def test_counters_are_those_of_pydarshan(joined: Run, layout: str) -> None:
    import darshan

    for path in sorted(logs(layout).iterdir()):
        report = darshan.DarshanReport(str(path), read_all=False)
        report.mod_read_all_records("POSIX", dtype="numpy")
        names = report.counters["POSIX"]["counters"]
        opens = sum(int(r["counters"][names.index("POSIX_OPENS")]) for r in report.records["POSIX"])
        found = one(
            joined,
            "select coalesce(sum(value), 0) from darshan_counters join darshan_logs using (log) "
            f"where file = '{path.name}' and counter = 'POSIX_OPENS'",
        )
        assert found == opens


def test_the_difference_to_what_threads_counted_is_stated(threaded: Run) -> None:
    io = summarize_io(threaded)
    assert io is not None
    assert io.compared is not None
    own = truth("dxt_v2_threads").values()
    assert io.compared.n_attempts == len(own)
    assert io.compared.counted_read_bytes == sum(t["io"]["rchar"] for t in own)
    assert io.compared.traced_read_bytes < io.compared.counted_read_bytes
    assert io.compared.equal_writes > 80


def test_files_are_told_with_what_was_read_again(threaded: Run) -> None:
    files = {row["uri"]: row for row in select_io(threaded, "file").to_pylist()}
    twice = next(row for uri, row in files.items() if uri.endswith("p0.parquet"))
    assert twice["n_tasks"] >= 3
    assert 0 < twice["repeated_bytes"] < twice["read_bytes"]
    assert twice["opens"] == 6
    segments = answers(
        threaded,
        f"select \"offset\" as a, length_bytes as n from io_segments where uri = '{twice['uri']}' "
        "and operation = 'read'",
    )
    seen = np.zeros(max(s["a"] + s["n"] for s in segments), bool)
    again = 0
    for s in segments:
        part = seen[s["a"] : s["a"] + s["n"]]
        again += int(part.sum())
        part[:] = True
    assert twice["repeated_bytes"] == again


def test_the_run_has_them_everywhere(threaded: Run, strata: Callable[..., Any]) -> None:
    run = threaded.path
    shown = strata("show", run, check=True).stdout
    assert "Darshan  tasks read" in shown
    assert "2 of 6 logs of Darshan's" in shown
    told = strata("story", run, "read_h5-1", check=True).stdout
    assert "known by its thread" in told
    assert "h1.h5" in told
    mapped = strata("map", run, check=True).stdout
    assert "darshan_logs 6 (imported)" in mapped
    printed = strata("io", run, check=True).stdout
    assert "reads: 118 attempts counted" in printed
    assert "had been read before" in printed
    rows = strata("io", run, "--format", "csv", "--by", "prefix", check=True).stdout.splitlines()
    assert rows[0].startswith("prefix,n_tasks,read_bytes")
    cell = next(c for c in metadata_map(threaded) if c.level == "process")
    assert "io_segments" in cell.imported


def test_a_run_without_logs_says_what_to_do(runs: Path, strata: Callable[..., Any]) -> None:
    done = strata("io", small_run(runs / "run"))
    assert done.returncode == 1
    assert "dask-strata import --into" in done.stderr
    run = open_run(runs / "run")
    assert one(run, "select count(io_seconds) from tasks") == 0


def content(run: Path) -> dict[str, Any]:
    opened = open_run(run)
    names = ("darshan_logs", "darshan_counters", "darshan_segments", "imports", "tasks")
    left_out = {"imports": "exclude (process)"}  # it is another with each import
    return {
        name: sorted(map(str, answers(opened, f"select * {left_out.get(name, '')} from {name}")))
        for name in names
    }


def test_it_is_all_the_same_once_compacted(runs: Path) -> None:
    before = darshan_run(runs / "before")
    after = darshan_run(runs / "after")
    compact(before)
    for run in (before, after):
        add_files(run, [logs("dxt_v2_threads")])
    compact(after)
    assert not list((after / "additions").iterdir())
    assert content(before) == content(after)
    compact(before)
    assert content(before) == content(after)
    assert open_run(after).check().ok


def test_what_compaction_has_is_not_counted_twice(runs: Path) -> None:
    """Compaction may be interrupted after it has swapped, before it has removed."""
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    expected = content(run)
    shutil.copytree(run / "additions", runs / "kept")
    compact(run)
    shutil.copytree(runs / "kept", run / "additions", dirs_exist_ok=True)
    assert content(run) == expected
    compact(run)
    assert content(run) == expected


def test_logs_are_imported_once(runs: Path) -> None:
    run = darshan_run(runs / "run")
    first, *others = sorted(logs("dxt_v2_threads").iterdir())
    assert add_files(run, [first]).files == 1
    copy = runs / "renamed.darshan"
    shutil.copy(first, copy)
    again = add_files(run, [first, copy, logs("dxt_v2_threads")])
    assert (again.files, again.again) == (len(others), 2)
    whole = content(run)
    assert add_files(run, [logs("dxt_v2_threads")]).again == 6
    assert content(run) == whole


def test_an_interrupted_import_leaves_the_run_as_it_was(runs: Path) -> None:
    run = darshan_run(runs / "run")
    before = sorted(p.name for p in run.rglob("*"))

    def stop(done: int, total: int) -> None:
        if done > total * 3 // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_files(run, [logs("dxt_v2_threads")], stop)
    assert sorted(p.name for p in run.rglob("*")) == before
    # What a kill -9 leaves is no part of the run.
    shutil.copytree(run, runs / "other")
    add_files(runs / "other", [logs("dxt_v2_threads")])
    (lot,) = (runs / "other" / "additions").iterdir()
    lot.rename(run / ".addition-0000")
    assert len(open_run(run)["darshan_logs"]) == 0


def test_a_run_that_is_being_recorded_is_left_alone(runs: Path, client: Client) -> None:
    with record(runs, client=client) as run:
        client.submit(sum, [1, 2]).result()
        with pytest.raises(StrataError, match="still being recorded"):
            add_files(run.path, [logs("dxt_v2_threads")])
    wait_until(
        lambda: all(segment_state(s) != "recording" for s in read_record(run.path).segments),
        what="the end of the recording",
    )
    # It is of another time than the logs are.
    added = add_files(run.path, [logs("dxt_v2_threads")])
    assert added.files == 0
    assert added.said == [
        "6 logs of no process of this run, nor of its time: left out (--others keeps them)"
    ]
    assert len(open_run(run.path)["darshan_logs"]) == 0


def test_logs_of_two_runs_in_one_folder(runs: Path, strata: Callable[..., Any]) -> None:
    early = Log([TracedFile("f", reads=[Operation(0, 1, 0, 1, 7)])], start=T0 - 3600 * SECOND)
    early.stop = early.start + SECOND
    folder = runs / "logs"
    shutil.copytree(logs("dxt_v2_threads"), folder)
    for number in range(12):
        (folder / f"other_id{number}-{number}_1-1-1-1_1.darshan").write_bytes(early.bytes())
        early.jobid = number
    run = darshan_run(runs / "run")
    done = strata("import", "--into", run, folder)
    assert done.returncode == 0, done.stderr
    assert "2 logs of processes of this run" in done.stdout
    assert (
        "logs of no process of this run, nor of its time: left out (--others keeps them)"
        in done.stdout
    )
    assert len(open_run(run)["darshan_logs"]) == 6


def test_a_pid_that_was_used_again_is_told_by_time(runs: Path) -> None:
    run = new_run(runs / "run")
    for name, first in (("worker-a", 0), ("worker-b", 100)):
        process = Process(
            run,
            name,
            address=f"tcp://{name}:1",
            pid=77,
            start=T0 + first * SECOND,
        )
        process.end(at=T0 + (first + 10) * SECOND)
    for number, first in enumerate((0, 100)):
        log = Log(
            [TracedFile("f", reads=[Operation(0, 1, 1, 2, 7)], host="elsewhere.domain")],
            start=T0 + first * SECOND,
            stop=T0 + (first + 9) * SECOND,
        )
        (runs / f"u_p_id1-77_1-1-{number}-1_1.darshan").write_bytes(log.bytes())
    # One more of that pid, on another host.
    log.files[0].host = "nowhere"  # type: ignore[index]
    (runs / "u_p_id1-77_1-1-3-1_1.darshan").write_bytes(log.bytes())
    add_files(run, sorted(runs.glob("*.darshan")))
    found = answers(open_run(run), "select process, tied_by from darshan_logs order by file")
    assert [row["process"] for row in found] == ["worker-a", "worker-b", None]
    assert found[0]["tied_by"] == "pid, host, time"


HOUR = 3600 * SECOND


def worker_of_tasks(run: Path, *, pid: int | None = 77) -> Path:
    """Make a run of one worker that ran ten tasks of half a second, one each second."""
    new_run(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    moves, rows = [], []
    for i in range(10):
        begin = T0 + i * SECOND + i**2 * 10_000_000
        common = {"key": f"t-{i}", "prefix": "t", "stimulus_id": "s"}
        moves += [
            common | {"time": begin, "start_state": "waiting", "finish_state": "processing"},
            common
            | {
                "time": begin + SECOND // 2,
                "start_state": "processing",
                "finish_state": "memory",
                "worker": "tcp://w:1",
                "thread": 7,
                "run_id": i,
            },
        ]
        rows.append(
            {
                "execution": i,
                "key": f"t-{i}",
                "worker": "tcp://w:1",
                "run_id": i,
                "thread": 7,
                "kind": "thread",
                "start": begin,
                "stop": begin + SECOND // 2,
                "outcome": "finished",
            }
        )
    scheduler.write("scheduler_transitions", moves)
    scheduler.end(at=T0 + 20 * SECOND)
    worker = Process(run, "worker-1", address="tcp://w:1", name="w", host="vm", pid=pid)
    worker.write("executions", rows)
    worker.end(at=T0 + 20 * SECOND)
    return run


def log_of_tasks(off: int = 0, threads: tuple[int, ...] = (7,)) -> Log:
    """Return the log of that worker, by a clock that is off: each task read three times."""
    ops = [
        Operation(j, 100, begin + j * 0.1, begin + j * 0.1 + 0.05, t)
        for i in range(10)
        for begin in [1 + i + i**2 * 0.01 + 0.1]
        for j in range(3)
        for t in threads
    ]
    first = Operation(0, 1, 0.0, 0.001, 1)  # the main thread, importing
    log = Log([TracedFile("/f", reads=[first, *ops])], jobid=77)
    log.start, log.stop = T0 + off - SECOND, T0 + off + 20 * SECOND
    return log


NAME = "u_python_id77-77_1-1-1-1_1.darshan"


@pytest.mark.parametrize("off", [0, 3 * HOUR, -5 * HOUR])
def test_a_clock_that_is_off_by_hours(runs: Path, off: int) -> None:
    run = worker_of_tasks(runs / "run")
    (runs / NAME).write_bytes(log_of_tasks(off).bytes())
    added = add_files(run, [runs / NAME])
    opened = open_run(run)
    (row,) = answers(opened, "from darshan_logs")
    assert row["process"] == "worker-1"
    assert row["tied_by"] == ("pid, host, threads" if off else "pid, host, time, threads")
    assert row["clock_shift_seconds"] == pytest.approx(-off / SECOND, abs=0.25)
    assert answers(opened, "select distinct io_read_bytes as n from tasks") == [{"n": 300}]
    assert ("clock more than a minute off" in " ".join(added.said)) == bool(off)
    assert any("doubtful" in f.text for f in opened.check().findings) == bool(off)


def test_a_clock_that_is_off_and_no_thread_is_not_guessed(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    log = log_of_tasks(3 * HOUR)
    log.layout = 32
    (runs / NAME).write_bytes(log.bytes())
    added = add_files(run, [runs / NAME])
    assert added.files == 0
    assert "left out" in added.said[0]


def addition_of(run: Path) -> Path:
    """Return the only addition of a run."""
    (found,) = (run / "additions").iterdir()
    return found


def test_an_addition_with_a_damaged_index_is_kept_and_told(
    runs: Path, strata: Callable[..., Any]
) -> None:
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    whole = content(run)
    added = addition_of(run)
    (added / "index.json").write_text('{"tables": {"darshan_logs"')
    for _ in range(2):
        assert content(run) == whole
        losses = answers(open_run(run), 'select what, reason, "where" from losses')
        assert [(r["what"], r["where"]) for r in losses] == [
            ("addition", f"additions/{added.name}")
        ]
        assert "index.json cannot be read" in losses[0]["reason"]
        done = strata("compact", run, check=True)
        assert "1 addition kept" in done.stdout
        assert added.is_dir()
    assert add_files(run, [logs("dxt_v2_threads")]).again == 6


def test_what_was_cut_of_an_addition_can_be_imported_again(runs: Path) -> None:
    run = darshan_run(runs / "run")
    add_files(run, [logs("dxt_v2_threads")])
    whole = content(run)
    damaged = addition_of(run)
    parquet = damaged / "darshan_segments" / "part-0.parquet"
    parquet.write_bytes(parquet.read_bytes()[:-100])
    done = compact(run)
    assert (done.additions, done.additions_kept) == (0, 1)
    opened = open_run(run)
    assert (len(opened["darshan_logs"]), len(opened["darshan_segments"])) == (6, 0)
    (finding,) = opened.check().missing
    assert "2,664 darshan_segments: its Parquet cannot be read" in finding.text
    added = add_files(run, [logs("dxt_v2_threads")])
    assert (added.rows, added.troubles) == (2664, [])
    assert content(run) == whole
    for merged in (1, 0):
        done = compact(run)
        assert (done.additions, done.additions_kept) == (merged, 1)
        assert content(run) == whole
    assert addition_of(run) == damaged
    assert add_files(run, [logs("dxt_v2_threads")]).rows == 0


def test_a_damaged_addition_to_an_imported_run(runs: Path) -> None:
    run = runs / "run"
    Manifest("imported", "imported", T0, "0", imported_from="elsewhere").write(run)
    log = log_of_tasks()
    (runs / NAME).write_bytes(log.bytes())
    add_files(run, [runs / NAME], others=True)
    (addition_of(run) / "index.json").write_text("[]")
    opened = open_run(run)
    assert len(opened["darshan_segments"]) == 31
    assert any("index.json cannot be read" in f.text for f in opened.check().missing)
    parquet = addition_of(run) / "darshan_segments" / "part-0.parquet"
    parquet.write_bytes(b"PAR1")
    opened = open_run(run)
    assert (len(opened["darshan_logs"]), len(opened["darshan_segments"])) == (1, 0)
    assert any("its Parquet cannot be read" in f.text for f in opened.check().missing)
    assert add_files(run, [runs / NAME], others=True).rows == 31
    assert len(open_run(run)["darshan_segments"]) == 31


@pytest.mark.parametrize("cut", ["index.json", "executions/part-0.parquet"])
def test_parquet_that_cannot_be_read_is_not_replaced(runs: Path, cut: str) -> None:
    run = worker_of_tasks(runs / "run")
    compact(run)
    (runs / NAME).write_bytes(log_of_tasks().bytes())
    add_files(run, [runs / NAME])
    path = run / "parquet" / cut
    path.write_bytes(path.read_bytes()[:-20])
    before = sorted(run.rglob("*"))
    with pytest.raises(StrataError, match="cannot be read in full"):
        compact(run)
    assert sorted(run.rglob("*")) == before
    opened = open_run(run)
    assert len(opened["scheduler_transitions"]) == 20
    assert any("cannot be read" in f.text for f in opened.check().missing)


def test_compacting_says_what_it_merged(runs: Path, strata: Callable[..., Any]) -> None:
    run = darshan_run(runs / "run")
    compact(run)
    add_files(run, [logs("dxt_v2_threads")])
    assert "1 addition, now" in strata("compact", run, check=True).stdout
    assert "Already compact" in strata("compact", run, check=True).stdout


def test_times_that_no_log_can_have(
    runs: Path, strata: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = worker_of_tasks(runs / "run")
    folder = runs / "logs"
    folder.mkdir()
    (folder / NAME).write_bytes(log_of_tasks().bytes())
    late = log_of_tasks(150 * 365 * 24 * HOUR)
    (folder / "late.darshan").write_bytes(late.bytes())
    long = log_of_tasks()
    long.jobid = 0
    long.files[0].reads[0].stop = 9e8  # type: ignore[index]
    (folder / "long.darshan").write_bytes(long.bytes())
    done = strata("import", "--into", run, "--others", folder)
    assert done.returncode == 1
    assert "late.darshan: has a job whose times make no sense" in done.stderr
    assert "1 operation with impossible numbers is left out" in done.stderr
    opened = open_run(run)
    assert len(opened["darshan_logs"]) == 2
    assert len(opened["darshan_segments"]) == 61
    assert any("1 operation with impossible" in f.text for f in opened.check().missing)
    # Nor does a log that was imported before they were refused make other commands fail.
    monkeypatch.setattr("dask_strata.importers.darshan.log._LATEST_SECONDS", 1 << 33)
    add_files(run, [folder], others=True)
    assert len(open_run(run)["darshan_logs"]) == 3
    for command in ("show", "io", "tasks", "check"):
        assert "Traceback" not in strata(command, run, check=command != "check").stderr


def test_whatever_a_log_raises_is_its_own(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = worker_of_tasks(runs / "run")
    (runs / "bad.darshan").write_bytes(log_of_tasks(SECOND).bytes())
    (runs / NAME).write_bytes(log_of_tasks().bytes())

    def look(path: Path, digest: str) -> Survey:
        if path.name == "bad.darshan":
            raise OverflowError("too far")
        return survey(path, digest)

    monkeypatch.setattr("dask_strata.importers.darshan.importer.survey", look)
    for again in (0, 1):  # what was refused is refused again
        added = add_files(run, [runs / "bad.darshan", runs / NAME])
        assert added.troubles == [f"{runs / 'bad.darshan'}: cannot be understood: too far"]
        assert added.again == again
    monkeypatch.undo()
    assert add_files(run, [runs / "bad.darshan"], others=True).files == 1


def test_what_is_no_file_is_not_opened(runs: Path, strata: Callable[..., Any]) -> None:
    run = small_run(runs / "run")
    os.mkfifo(runs / "pipe")
    os.mkfifo(runs / "pipe.darshan")
    for path in (runs / "pipe", runs / "pipe.darshan", Path("/dev/zero")):
        done = strata("import", "--into", run, path)
        assert done.returncode == 1
        assert "not a file that can be added" in done.stderr


def test_other_files_of_a_folder_are_one_line(runs: Path, strata: Callable[..., Any]) -> None:
    run = worker_of_tasks(runs / "run")
    folder = runs / "logs"
    folder.mkdir()
    (folder / NAME).write_bytes(log_of_tasks().bytes())
    for number in range(3):
        (folder / f"{number}.txt").touch()
    done = strata("import", "--into", run, folder, check=True)
    assert done.stderr.splitlines()[-1] == f"3 other files in {folder} were not looked at."


def test_counters_are_read_where_memory_is_limited(runs: Path) -> None:
    """A limit of the user's own, as by `ulimit -v`, may be lower than ours."""
    code = (
        "import resource, sys; from pathlib import Path; "
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); "
        "from dask_strata.importers.darshan.counters import Wanted, read_counters; "
        "(found,) = read_counters([Wanted(Path(sys.argv[1]), ('POSIX',))]); "
        "print(len(found), found)"
    )
    log = min(logs("dxt_v2_threads").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code, log],
        capture_output=True,
        text=True,
        cwd=runs.parent,
        check=True,
    )
    assert int(done.stdout.split()[0]) > 50, done.stdout
    assert "pyarrow.Table" in done.stdout


def test_a_lower_limit_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but the superuser may, so that it must not be tried."""
    limits = []
    monkeypatch.setattr("resource.setrlimit", lambda what, limit: limits.append((what, limit)))
    for hard in (3 << 30, resource.RLIM_INFINITY):
        monkeypatch.setattr("resource.getrlimit", lambda _, hard=hard: (hard, hard))
        counters_child._limit(resource.RLIMIT_AS, 4 << 30)
    assert [limit for _, limit in limits] == [(3 << 30, 3 << 30), (4 << 30, 4 << 30)]


def test_check_says_of_which_time_other_logs_are(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    for number, off in enumerate((0, -24 * HOUR)):
        log = log_of_tasks(off, threads=())
        log.jobid = number
        (runs / f"u_uname_id{number}-{number + 1000}_1-1-1-1_1.darshan").write_bytes(log.bytes())
    add_files(run, sorted(runs.glob("*.darshan")), others=True)
    said = [f.text for f in open_run(run).check().findings]
    assert (
        "0 logs of processes of the run, 1 of other programs meanwhile: spawn_main, "
        "1 of no process of the run, nor of its time"
    ) in said


def test_threads_tie_where_no_pid_is_known(runs: Path) -> None:
    run = worker_of_tasks(runs / "run", pid=None)
    (runs / "renamed.darshan").write_bytes(log_of_tasks().bytes())
    add_files(run, [runs / "renamed.darshan"])
    (row,) = answers(open_run(run), "from darshan_logs")
    assert (row["process"], row["tied_by"]) == ("worker-1", "threads, time")


def test_other_threads_go_by_time(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    (runs / NAME).write_bytes(log_of_tasks(threads=(7, 8)).bytes())
    add_files(run, [runs / NAME])
    found = answers(
        open_run(run),
        "select thread, attributed_by, n_candidates, count(*) as n from io_segments "
        "group by all order by thread",
    )
    assert [tuple(row.values()) for row in found] == [
        (1, "outside", 0, 1),
        (7, "thread", 1, 30),
        (8, "alone", 1, 30),
    ]


@pytest.mark.parametrize("early", [True, False])
def test_the_thread_that_traced_first_may_be_the_loops(runs: Path, *, early: bool) -> None:
    """Where imports were not traced, the first may be one that a task has started."""
    run = worker_of_tasks(runs / "run")
    log = log_of_tasks(threads=(7, 8))
    first, second, *others = log.files[0].reads
    second.thread = 8
    log.files[0].reads = [second, *others]
    if early:
        first.thread = 8
        log.files[0].reads = [first, second, *others]
    (runs / NAME).write_bytes(log.bytes())
    add_files(run, [runs / NAME])
    opened = open_run(run)
    assert one(opened, "select main_thread from darshan_logs") == 8
    counted = (
        "select attributed_by as a, count(*) as n from io_segments where thread = 8 group by a"
    )
    expected = {"a": "outside", "n": 32} if early else {"a": "alone", "n": 31}
    assert answers(opened, counted) == [expected]


def test_bad_logs_are_named_and_the_rest_goes_in(runs: Path, strata: Callable[..., Any]) -> None:
    folder = runs / "logs"
    shutil.copytree(logs("dxt_v2_threads"), folder)
    worker = max(folder.iterdir(), key=lambda p: p.stat().st_size)
    whole = worker.read_bytes()
    (folder / "empty.darshan").write_bytes(b"")
    (folder / "noise.darshan").write_bytes(os.urandom(5000))
    (folder / f"cut_id1-{worker.name.split('-')[1].split('_')[0]}_1-1-1-1_1.darshan").write_bytes(
        whole[: len(whole) * 2 // 3]
    )
    (folder / "version.darshan").write_bytes(b"4.20".ljust(8, b"\0") + whole[8:])
    lustre = struct.pack("<Qqqq", 1, 0, 1 << 33, 1 << 33) + bytes(1 << 16)
    start = open_log(worker).start
    bomb = Log([TracedFile("f")], others={"LUSTRE": lustre}, dxt_version=2, start=start)
    bomb.stop = start + SECOND
    (folder / "crash.darshan").write_bytes(bomb.bytes())
    (folder / "notes.txt").write_text("no log")
    run = darshan_run(runs / "run")
    done = strata("import", "--into", run, folder)
    assert done.returncode == 1
    for said in (
        "empty.darshan: is empty",
        "noise.darshan: is no Darshan log",
        "DXT_POSIX is cut",
        "version.darshan: is of Darshan's log format 4.20",
        "1 other file in ",
    ):
        assert said in done.stderr
    # What the damage does depends on what is in memory behind it: a crash, or a text that is none.
    crashes = ("PyDarshan's process ended with SIG", "PyDarshan: UnicodeDecodeError")
    assert any(f"crash.darshan: no counters: {how}" in done.stderr for how in crashes)
    opened = open_run(run)
    assert one(opened, "select count(*) from darshan_logs where tied_by is not null") == 3
    assert one(opened, "select count(distinct log) from darshan_counters") >= 7
    missing = [f.text for f in opened.check().missing]
    assert any("empty.darshan: is empty" in text for text in missing)
    assert any("DXT_POSIX is cut" in text for text in missing)
    whole_log = one(opened, f"select n_segments from darshan_logs where file = '{worker.name}'")
    assert whole_log > 1000


def test_a_log_that_hangs_is_given_up(tmp_path: Path) -> None:
    fifo = tmp_path / "hangs.darshan"
    os.mkfifo(fifo)
    good = min(logs("dxt_v2_threads").iterdir())
    asked = [Wanted(fifo, ("POSIX",)), Wanted(good, ("POSIX",))]
    hung, fine = read_counters(asked, log_seconds=-55)
    assert isinstance(hung, str)
    assert "hangs" in hung
    assert len(fine) > 50


def test_thousands_of_logs(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    folder = runs / "logs"
    folder.mkdir()
    for number in range(2000):
        log = log_of_tasks()
        log.jobid = number + 1000
        (folder / f"u_uname_id{number}-{number + 1000}_1-1-1-1_1.darshan").write_bytes(log.bytes())
    (folder / NAME).write_bytes(log_of_tasks().bytes())
    began = time.perf_counter()
    added = add_files(run, [folder])
    assert time.perf_counter() - began < 60
    assert added.files == 2001
    assert one(open_run(run), "select count(*) from io_segments") == 2001 * 31


def test_a_worker_without_a_log_is_named(runs: Path) -> None:
    run = darshan_run(runs / "run")
    some = [p for p in sorted(logs("dxt_v2_threads").iterdir()) if "24811" not in p.name]
    add_files(run, some)
    (finding,) = open_run(run).check().missing
    assert finding.process == "worker-24811"
    assert "has no log of Darshan's though others have one" in finding.text


def test_without_pydarshan_traces_go_in_and_counters_follow(runs: Path, tmp_path: Path) -> None:
    run = darshan_run(runs / "run")
    code = (
        "import sys; sys.modules['darshan'] = None; from dask_strata.__main__ import main; main()"
    )
    arguments = ["import", "--into", str(run), str(logs("dxt_v2_threads"))]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'dask-strata[darshan]'" in done.stderr
    opened = open_run(run)
    assert len(opened["darshan_counters"]) == 0
    assert len(opened["darshan_segments"]) == 2664
    assert any("without counters" in f.text for f in opened.check().missing)
    assert add_files(run, [logs("dxt_v2_threads")]).rows > 1000
    opened = open_run(run)
    assert opened.check().ok
    assert len(opened["darshan_segments"]) == 2664


def test_spilled_results_are_of_no_task(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    log = log_of_tasks(threads=(8,))
    log.files = [
        TracedFile("/tmp/dask-scratch-space/worker-x/storage/t-0", reads=log.files[0].reads)
    ]
    (runs / NAME).write_bytes(log.bytes())
    add_files(run, [runs / NAME])
    assert answers(open_run(run), "select distinct attributed_by as a from io_segments") == [
        {"a": "outside"}
    ]


def test_what_makes_no_sense_together(runs: Path, strata: Callable[..., Any]) -> None:
    run = small_run(runs / "run")
    assert strata("import", "--into", run, "-o", "elsewhere", ".").returncode == 2
    with pytest.raises(UsageError, match="does not exist"):
        add_files(run, [runs / "nothing"])
    (runs / "notes.txt").write_text("no log")
    done = strata("import", "--into", run, runs / "notes.txt")
    assert done.returncode == 1
    assert "not a file that can be added" in done.stderr


def test_a_real_run_of_the_coupler(runs: Path) -> None:
    real = FIXTURES / "darshan_polaris" / "PMDA_R1"
    if not real.is_dir():
        pytest.skip(f"no real logs: {real} is absent")
    files = find_files(FIXTURES / "PMDA" / "D2024-04-19_19:01:00_R1_W8")
    run = import_files(files, runs, name="PMDA").path
    add_files(run, [real])
    opened = open_run(run)
    assert one(opened, "select count(*) from darshan_logs where tied_by = 'threads, time'") == 6
    assert (
        one(
            opened,
            "select avg((attributed_by = 'thread')::int) from io_segments "
            "where attributed_by is not null",
        )
        > 0.75
    )
    assert one(opened, "select count(*) from tasks where io_read_bytes > 0") >= 6
    assert len(opened["imports"]) == len(files) + len(opened["darshan_logs"])
    assert ns(1) == SECOND
