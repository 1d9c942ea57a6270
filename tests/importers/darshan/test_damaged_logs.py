"""Damaged and foreign files are reported, and the other logs are imported."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.errors import UsageError
from dask_strata.importers.darshan.log import open_log
from dask_strata.importers.darshan.survey import Survey, survey
from dask_strata.importers.registry import add_files
from tests.support.darshan_files import SECOND, Log, TracedFile
from tests.support.darshan_runs import (
    HOUR,
    NAME,
    darshan_run,
    log_of_tasks,
    logs,
    one,
    worker_of_tasks,
)
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

pytest.importorskip("darshan", reason="PyDarshan has no wheel for this Python")


def test_impossible_times(
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
    # A log that was imported before such times were refused makes no command fail.
    monkeypatch.setattr("dask_strata.importers.darshan.log._LATEST_SECONDS", 1 << 33)
    add_files(run, [folder], others=True)
    assert len(open_run(run)["darshan_logs"]) == 3
    for command in ("show", "io", "tasks", "check"):
        assert "Traceback" not in strata(command, run, check=command != "check").stderr


def test_an_error_about_one_log_does_not_stop_the_others(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = worker_of_tasks(runs / "run")
    (runs / "bad.darshan").write_bytes(log_of_tasks(SECOND).bytes())
    (runs / NAME).write_bytes(log_of_tasks().bytes())

    def look(path: Path, digest: str) -> Survey:
        if path.name == "bad.darshan":
            raise OverflowError("too far")
        return survey(path, digest)

    monkeypatch.setattr("dask_strata.importers.darshan.importer.survey", look)
    for again in (0, 1):  # a refused log is refused again
        added = add_files(run, [runs / "bad.darshan", runs / NAME])
        assert added.problems == [f"{runs / 'bad.darshan'}: cannot be understood: too far"]
        assert added.already_imported == again
    monkeypatch.undo()
    assert add_files(run, [runs / "bad.darshan"], others=True).files == 1


def test_pipes_and_devices_are_not_opened(runs: Path, strata: Callable[..., Any]) -> None:
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
    assert done.stderr.splitlines()[-1] == f"3 other files in {folder} were skipped."


def test_damaged_logs_are_named_and_the_others_imported(
    runs: Path, strata: Callable[..., Any]
) -> None:
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
    for message in (
        "empty.darshan: is empty",
        "noise.darshan: is no Darshan log",
        "DXT_POSIX is cut",
        "version.darshan: has Darshan's log format 4.20",
        "1 other file in ",
    ):
        assert message in done.stderr
    # The effect depends on the memory after the damaged bytes: a crash, or invalid text.
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


def test_usage_errors(runs: Path, strata: Callable[..., Any]) -> None:
    run = small_run(runs / "run")
    assert strata("import", "--into", run, "-o", "elsewhere", ".").returncode == 2
    with pytest.raises(UsageError, match="does not exist"):
        add_files(run, [runs / "nothing"])
    (runs / "notes.txt").write_text("no log")
    done = strata("import", "--into", run, runs / "notes.txt")
    assert done.returncode == 1
    assert "not a file that can be added" in done.stderr
