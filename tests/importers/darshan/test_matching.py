"""Darshan's logs are matched to processes, and their clocks are fitted."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client  # noqa: TC002  a fixture's type, as in other tests

from dask_strata import open_run, record
from dask_strata.errors import StrataError
from dask_strata.importers.darshan.dxt import Trace
from dask_strata.importers.darshan.log import open_log
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from dask_strata.store.reader import read_record
from dask_strata.store.segments.read import segment_state
from tests.conftest import wait_until
from tests.support.darshan_files import SECOND, Log, Operation, TracedFile
from tests.support.darshan_runs import (
    HOUR,
    NAME,
    answers,
    darshan_run,
    log_of_tasks,
    logs,
    notes,
    worker_of_tasks,
)
from tests.support.synthetic import T0, Process, new_run

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")


def test_logs_are_matched_to_their_processes(joined: Run) -> None:
    matched = answers(joined, "from darshan_logs where tied_by is not null order by pid")
    assert [row["process"] for row in matched] == [f"worker-{row['pid']}" for row in matched]
    assert {row["program"] for row in matched} == {"spawn_main"}
    assert all(row["tied_by"].startswith("pid, host, time") for row in matched)
    others = answers(joined, "from darshan_logs where tied_by is null")
    assert {row["program"] for row in others} == {"dask worker", "resource_tracker"}
    assert all(row["process"] is None for row in others)


def test_the_clock_shift_agrees_with_beacons(joined: Run, layout: str) -> None:
    for row in answers(joined, "from darshan_logs where tied_by is not null"):
        path = logs(layout) / row["file"]
        log = open_log(path)
        known = log.read_names()
        beacon = next(i for i, name in known.items() if "beacon" in name)
        expected = {
            n["offset"]: (n["t0"] + n["t1"]) / 2
            for n in notes(layout, row["pid"])
            if n["ev"] == "beacon"
        }
        shifts = []
        for ops in Trace(log, "DXT_POSIX", known):
            mine = ops.write & (ops.file == np.uint64(beacon))
            middle = (ops.start[mine] + ops.stop[mine]) / 2 + log.start / 1e9
            shifts += [
                expected[o] - t
                for o, t in zip(ops.offset[mine].tolist(), middle.tolist(), strict=True)
                if o in expected
            ]
        assert row["clock_shift_seconds"] == pytest.approx(statistics.median(shifts), abs=1e-3)
        assert row["clock_uncertainty_seconds"] < 1e-3


def test_a_run_that_is_being_recorded_is_left_alone(runs: Path, client: Client) -> None:
    with record(runs, client=client) as run:
        client.submit(sum, [1, 2]).result()
        with pytest.raises(StrataError, match="still being recorded"):
            add_files(run.path, [logs("dxt_v2_threads")])
    wait_until(
        lambda: all(segment_state(s) != "recording" for s in read_record(run.path).segments),
        what="the end of the recording",
    )
    # The logs are of another time.
    added = add_files(run.path, [logs("dxt_v2_threads")])
    assert added.files == 0
    (note,) = added.notes
    assert note == (
        "6 logs that match neither this run's processes nor its time: "
        "left out (--others keeps them)"
    )
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
        "logs that match neither this run's processes nor its time: left out (--others keeps them)"
        in done.stdout
    )
    assert len(open_run(run)["darshan_logs"]) == 6


def test_a_reused_pid_is_resolved_by_time(runs: Path) -> None:
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
    # Another log with the same pid, from another host.
    log.files[0].host = "nowhere"  # type: ignore[index]
    (runs / "u_p_id1-77_1-1-3-1_1.darshan").write_bytes(log.bytes())
    add_files(run, sorted(runs.glob("*.darshan")))
    found = answers(open_run(run), "select process, tied_by from darshan_logs order by file")
    assert [row["process"] for row in found] == ["worker-a", "worker-b", None]
    assert found[0]["tied_by"] == "pid, host, time"


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
    assert ("clock more than a minute off" in " ".join(added.notes)) == bool(off)
    assert any("doubtful" in f.text for f in opened.check().findings) == bool(off)


def test_a_clock_that_is_off_is_not_guessed_without_threads(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    log = log_of_tasks(3 * HOUR)
    log.layout = 32
    (runs / NAME).write_bytes(log.bytes())
    added = add_files(run, [runs / NAME])
    assert added.files == 0
    assert "left out" in added.notes[0]


def test_check_counts_the_logs_of_other_programs(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    for number, off in enumerate((0, -24 * HOUR)):
        log = log_of_tasks(off, threads=())
        log.jobid = number
        (runs / f"u_uname_id{number}-{number + 1000}_1-1-1-1_1.darshan").write_bytes(log.bytes())
    add_files(run, sorted(runs.glob("*.darshan")), others=True)
    findings = [f.text for f in open_run(run).check().findings]
    assert (
        "0 logs of processes of the run, 1 of other programs at the time: spawn_main, "
        "1 of other programs at other times"
    ) in findings


def test_logs_without_a_pid_are_matched_by_threads(runs: Path) -> None:
    run = worker_of_tasks(runs / "run", pid=None)
    (runs / "renamed.darshan").write_bytes(log_of_tasks().bytes())
    add_files(run, [runs / "renamed.darshan"])
    (row,) = answers(open_run(run), "from darshan_logs")
    assert (row["process"], row["tied_by"]) == ("worker-1", "threads, time")


def test_a_worker_without_a_log_is_named(runs: Path) -> None:
    run = darshan_run(runs / "run")
    some = [p for p in sorted(logs("dxt_v2_threads").iterdir()) if "24811" not in p.name]
    add_files(run, some)
    (finding,) = open_run(run).check().missing
    assert finding.process == "worker-24811"
    assert "has no Darshan log, but other workers have one" in finding.text
