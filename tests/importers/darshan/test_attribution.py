"""Reads and writes in Darshan's logs are attributed to tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_strata import open_run
from dask_strata.analysis.io import select_io, summarize_io
from dask_strata.analysis.map import metadata_map
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.registry import add_files
from dask_strata.run import Run
from tests.support.darshan_files import SECOND, TracedFile
from tests.support.darshan_runs import NAME, answers, log_of_tasks, ns, one, truth, worker_of_tasks
from tests.support.shared_fixtures import shared_fixture
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")


#: Tasks of the recorded runs whose own thread read and wrote everything by system calls. NumPy uses
#: C's FILE*, which is not traced; Arrow uses threads of its own.
PLAIN = ("read_text", "read_h5", "write_h5", "read_gz", "write_gz", "read_root", "write_root")

#: Bytes that a task read from /proc to obtain its thread's counters.
OWN_READING = 400


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
    # The first tasks read Python modules, which Darshan was configured to leave out.
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
    assert (io.certain or 0) > 0.82
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


def test_the_difference_to_the_threads_counters_is_stated(threaded: Run) -> None:
    io = summarize_io(threaded)
    assert io is not None
    assert io.compared is not None
    own = truth("dxt_v2_threads").values()
    assert io.compared.n_attempts == len(own)
    assert io.compared.counted_read_bytes == sum(t["io"]["rchar"] for t in own)
    assert io.compared.traced_read_bytes < io.compared.counted_read_bytes
    assert io.compared.equal_writes > 80


def test_files_have_their_repeated_reads(threaded: Run) -> None:
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


def test_commands_show_the_logs(threaded: Run, strata: Callable[..., Any]) -> None:
    run = threaded.path
    shown = strata("show", run, check=True).stdout
    assert "Darshan    tasks read" in shown
    assert "2 of 6 logs are of processes of the run" in shown
    story = strata("story", run, "read_h5-1", check=True).stdout
    assert "matched by thread" in story
    assert "h1.h5" in story
    mapped = strata("map", run, check=True).stdout
    assert "darshan_logs 6 (imported)" in mapped
    printed = strata("io", run, check=True).stdout
    assert "reads of 118 attempts: " in printed
    assert "were read again" in printed
    rows = strata("io", run, "--format", "csv", "--by", "prefix", check=True).stdout.splitlines()
    assert rows[0].startswith("prefix,n_tasks,read_bytes")
    cell = next(c for c in metadata_map(threaded) if c.level == "process")
    assert "io_segments" in cell.imported


def test_io_of_a_run_without_logs_prints_what_to_do(runs: Path, strata: Callable[..., Any]) -> None:
    done = strata("io", small_run(runs / "run"))
    assert done.returncode == 1
    assert "dask-strata import --into" in done.stderr
    run = open_run(runs / "run")
    assert one(run, "select count(io_seconds) from tasks") == 0


def test_operations_of_other_threads_have_a_candidate(runs: Path) -> None:
    """Any thread may read while one task runs: the recorder's, Dask's, a library's."""
    run = worker_of_tasks(runs / "run")
    (runs / NAME).write_bytes(log_of_tasks(threads=(7, 8)).bytes())
    add_files(run, [runs / NAME])
    found = answers(
        open_run(run),
        "select thread, attributed_by, n_candidates, count(*) as n, count(attempt) as attempts, "
        "count(distinct candidate) as candidates from io_segments group by all order by thread",
    )
    assert [tuple(row.values()) for row in found] == [
        (1, "outside", 0, 1, 0, 0),
        (7, "thread", 1, 30, 30, 0),
        (8, "elsewhere", 1, 30, 0, 10),
    ]


def test_without_threads_the_only_task_counts(runs: Path) -> None:
    run = worker_of_tasks(runs / "run")
    log = log_of_tasks(threads=(7, 8))
    log.layout = 32
    (runs / NAME).write_bytes(log.bytes())
    add_files(run, [runs / NAME])
    found = answers(
        open_run(run), "select attributed_by as by, count(*) as n from io_segments group by 1"
    )
    assert {row["by"]: row["n"] for row in found} == {"alone": 60, "outside": 1}


@pytest.mark.parametrize("early", [True, False])
def test_the_first_traced_thread_may_be_the_event_loops(runs: Path, *, early: bool) -> None:
    """If imports were not traced, the first thread may be one that a task has started."""
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
    expected = {"a": "outside", "n": 32} if early else {"a": "elsewhere", "n": 31}
    assert answers(opened, counted) == [expected]


def test_spilling_is_attributed_to_no_task(runs: Path) -> None:
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


def test_a_real_run_of_the_coupler(runs: Path) -> None:
    real = shared_fixture("darshan_polaris/PMDA_R1")
    files = find_files(shared_fixture("PMDA/D2024-04-19_19:01:00_R1_W8"))
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
