"""Every byte of every log is shown: tied to a task, a process or a host, or with the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.analysis.io import summarize_io
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from tests.support.darshan_files import SECOND, Log, Operation, TracedFile
from tests.support.darshan_runs import answers, logs, worker_of_tasks
from tests.support.shared_fixtures import shared_fixture
from tests.support.synthetic import T0, Process, new_run

pytestmark = pytest.mark.long

darshan = pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")

Sums = tuple[int, int]


def counted_by_darshan(folder: Path) -> Sums:
    """Return the bytes read and written that PyDarshan finds in the counters of all logs."""
    read = written = 0
    for path in sorted(folder.glob("*.darshan")):
        with darshan.DarshanReport(str(path), read_all=False) as report:
            for module in {"POSIX", "STDIO"} & set(report.modules):
                report.mod_read_all_records(module)
                counters = report.records[module].to_df()["counters"]
                read += int(counters[f"{module}_BYTES_READ"].sum())
                written += int(counters[f"{module}_BYTES_WRITTEN"].sum())
    return read, written


def shown(strata: Callable[..., Any], run: Path, by: str) -> Sums:
    done = strata("io", run, "--by", by, "--format", "json", check=True)
    rows = json.loads(done.stdout)
    return sum(r["read_bytes"] for r in rows), sum(r["write_bytes"] for r in rows)


def test_sums_are_the_logs_own_counters(threaded: Run, strata: Callable[..., Any]) -> None:
    """The truth is what PyDarshan reads from the same files."""
    truth = counted_by_darshan(logs("dxt_v2_threads"))
    assert truth[0] > 0
    for by in ("total", "host", "log"):
        assert shown(strata, threaded.path, by) == truth
    files = json.loads(
        strata("io", threaded.path, "--by", "file", "--format", "json", check=True).stdout
    )
    assert sum(
        f["read_bytes"] + f["write_bytes"] + (f["untraced_bytes"] or 0) for f in files
    ) == sum(truth)
    io = summarize_io(threaded)
    assert io is not None
    assert (io.read_bytes, io.write_bytes) == truth
    assert {total.tied_to for total in io.totals} == {"task", "process", "host"}
    assert all(total.reason for total in io.totals if total.tied_to != "task")


def two_workers(folder: Path, seed: int = 1) -> dict[str, list[float]]:
    """Make a run of two workers without pids and threads; return the starts of their tasks."""
    new_run(folder)
    chance = random.Random(seed)
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    starts: dict[str, list[float]] = {}
    for worker in ("tcp://a:1", "tcp://b:1"):
        starts[worker] = [3 * number + chance.uniform(0, 2) for number in range(60)]
        rows = [
            {
                "execution": number,
                "key": f"{worker}-{number}",
                "worker": worker,
                "run_id": number,
                "kind": "thread",
                "start": T0 + int(start * SECOND),
                "stop": T0 + int((start + 0.5) * SECOND),
                "outcome": "finished",
            }
            for number, start in enumerate(starts[worker])
        ]
        scheduler.write(
            "scheduler_transitions",
            [
                {"prefix": "t", "stimulus_id": "s", "run_id": row["run_id"], "worker": worker}
                | {"key": row["key"], "time": row[at], "start_state": a, "finish_state": b}
                for row in rows
                for at, a, b in (
                    ("start", "waiting", "processing"),
                    ("stop", "processing", "memory"),
                )
            ],
        )
        process = Process(folder, f"worker-{worker[6]}", address=worker, host="10.0.0.1", pid=None)
        process.write("executions", rows)
        process.end(at=T0 + 210 * SECOND)
    scheduler.end(at=T0 + 210 * SECOND)
    return starts


def log_of_reads(starts: list[float], name: str, pid: int) -> Log:
    """Return a log of a process on the host `node` that read 1 kB 0.1 s after each start."""
    reads = [Operation(0, 1000, s + 0.1, s + 0.2, thread=9) for s in starts]
    first = Operation(0, 1, 0.0, 0.001, thread=1)  # the event loop's thread
    file = TracedFile(name, reads=[first, *reads], host="node")
    return Log([file], jobid=pid, start=T0, stop=T0 + 210 * SECOND)


def test_logs_are_tied_to_workers_by_the_times_of_their_operations(
    runs: Path, strata: Callable[..., Any]
) -> None:
    starts = two_workers(runs / "run")
    chance = random.Random(2)
    starts["nobody"] = [3 * number + chance.uniform(0, 2) for number in range(60)]
    folder = runs / "logs"
    folder.mkdir()
    for pid, (worker, times) in enumerate(starts.items(), 50):
        log = log_of_reads(times, worker, pid)
        (folder / f"u_python_id{pid}-{pid}_1-1-1-1_1.darshan").write_bytes(log.bytes())
    done = strata("import", "--into", runs / "run", folder, check=True)
    assert "2 by the times of their operations" in done.stdout
    run = open_run(runs / "run")
    found = answers(
        run,
        "select s.uri, l.worker, l.tied_by, l.certainty from darshan_logs l "
        "join (select distinct log, uri from darshan_segments) s using (log) order by uri",
    )
    assert [(row["uri"], row["worker"]) for row in found] == [
        ("nobody", None),
        ("tcp://a:1", "tcp://a:1"),
        ("tcp://b:1", "tcp://b:1"),
    ]
    assert [row["tied_by"] for row in found] == [None, "time", "time"]
    assert found[0]["certainty"] is None
    assert all(0.6 < row["certainty"] < 1 for row in found[1:])
    io = summarize_io(run)
    assert io is not None
    assert (io.n_logs, io.n_tied) == (3, 2)
    assert io.read_bytes == 3 * 60 * 1000 + 3
    by = {total.tied_to: total for total in io.totals}
    assert (by["task"].read_bytes, by["task"].attributed_by) == (2 * 60 * 1000, "alone")
    # The third process is on the host of the two others.
    assert by["host"].read_bytes == 60 * 1000 + 1
    assert "it was not matched" in (by["host"].reason or "")
    printed = strata("io", runs / "run", check=True).stdout
    assert "matched to workers by the times of their operations" in printed
    assert "it was not matched by the times of its operations" in printed


@pytest.mark.parametrize(
    ("n_reads", "n_logs", "why"),
    [
        (20, 1, "fewer than 50 operations while a worker ran tasks"),
        (60, 2, "several logs fit the same worker"),
    ],
)
def test_the_import_prints_why_logs_were_not_matched(
    runs: Path, strata: Callable[..., Any], n_reads: int, n_logs: int, why: str
) -> None:
    starts = two_workers(runs / "run")["tcp://a:1"]
    folder = runs / "logs"
    folder.mkdir()
    for pid in range(50, 50 + n_logs):
        log = log_of_reads(starts[:n_reads], f"file-{pid}", pid)
        (folder / f"u_python_id{pid}-{pid}_1-1-1-1_1.darshan").write_bytes(log.bytes())
    printed = strata("import", "--into", runs / "run", folder, check=True).stdout
    logs = "1 log" if n_logs == 1 else f"{n_logs} logs"
    assert f"{logs} not matched by the times of operations: {why}" in printed
    assert "or of processes that could not be determined, kept" in printed


def test_a_busy_worker_is_not_matched_by_time(runs: Path) -> None:
    """Whenever a process reads, a task runs: this is no evidence."""
    run = worker_of_tasks(runs / "run", pid=None)
    worker = Process(run, "worker-2", address="tcp://busy:1", host="vm", pid=None)
    row = {"execution": 0, "key": "all", "worker": "tcp://busy:1", "kind": "thread"}
    worker.write(
        "executions", [row | {"start": T0, "stop": T0 + 200 * SECOND, "outcome": "finished"}]
    )
    worker.end(at=T0 + 210 * SECOND)
    chance = random.Random(3)
    log = log_of_reads(sorted(chance.uniform(0, 199) for _ in range(60)), "f", 60)
    (runs / "u_python_id60-60_1-1-1-1_1.darshan").write_bytes(log.bytes())
    add_files(run, sorted(runs.glob("*.darshan")))
    assert answers(open_run(run), "select worker, tied_by from darshan_logs") == [
        {"worker": None, "tied_by": None}
    ]


def test_a_real_run_whose_workers_have_neither_pids_nor_threads(
    runs: Path, strata: Callable[..., Any]
) -> None:
    """Half of the logs are of workers whose rows were lost; the others are matched one to one."""
    folder = shared_fixture("darshan_polaris/ImageProcessing_R7")
    truth = json.loads((folder.parent / "expected.json").read_text())["ImageProcessing_R7"]
    files = find_files(shared_fixture("ImageProcessing/D2024-04-18_15:54:03_R7_W8"))
    run = import_files(files, runs, name="R7").path
    add_files(run, [folder])
    opened = open_run(run)
    (traced,) = answers(
        opened,
        "select sum(read_bytes)::bigint as read_bytes, sum(write_bytes)::bigint as write_bytes, "
        "sum(n_operations)::bigint as segments "
        "from io_totals where attributed_by is distinct from 'untraced'",
    )
    assert traced == {name: truth[name] for name in traced}
    counted = counted_by_darshan(folder)
    assert shown(strata, run, "total") == counted
    assert shown(strata, run, "host") == counted
    of_hosts = strata("io", run, "--by", "host", "--format", "json", check=True).stdout
    # Logs of this host beside those of workers are tied to the host only: their bytes are untied.
    [host] = [row for row in json.loads(of_hosts) if row["host"] == "x3107c0s7b0n0"]
    assert (host["n_logs"], host["n_tied"]) == (12, 4)
    assert (host["untied_read_bytes"], host["untied_write_bytes"]) == (1_195_700, 24_828)
    matched = answers(opened, "select host, worker, certainty from darshan_logs where worker <> ''")
    assert len({row["worker"] for row in matched}) == 4
    assert len({row["host"] for row in matched}) == 1
    assert min(row["certainty"] for row in matched) > 0.95
