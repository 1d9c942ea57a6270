"""`dask-strata follow` on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dask_strata.brokers.message import decode
from dask_strata.store.manifest import Manifest
from tests.stream.test_follow import busy_run, followed
from tests.support.synthetic import T0, Process, new_run

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


def test_lines_are_the_messages_of_a_stream(tmp_path: Path, strata: Strata) -> None:
    """With the run, the process and the number of each row."""
    run = busy_run(tmp_path / "run")
    done = strata("follow", run, "--from", "worker-1:5", check=True)
    found = [decode(line.encode()) for line in done.stdout.splitlines()]
    expected = followed(run, start={"worker-1": 5})
    assert [(m.table, m.process, m.first) for m in found if m.process == "worker-1"] == sorted(
        (
            (table, process, n)
            for (table, process), rows in expected.rows.items()
            for n, _ in rows
            if process == "worker-1"
        ),
        key=lambda place: place[2],
    )
    assert len(found) == sum(map(len, expected.rows.values()))


def test_derived_tables_and_lines_for_people(tmp_path: Path, strata: Strata) -> None:
    """Attempts in JSON; tables as text, on one line a row whatever a value contains."""
    run = busy_run(tmp_path / "run")
    done = strata("follow", run, "--table", "attempts", check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["row"]["key"] for row in rows] == [f"a-{i}" for i in range(8)]
    assert [row["seq"] for row in rows] == list(range(8))
    worker = Process(run, "worker-3", address="tcp://w:3")
    worker.write("losses", [{"time": T0, "reason": "two\nlines\x1b[31m"}])
    worker.end()
    done = strata("follow", run, "--table", "losses", "--format", "table", "--no-wait", check=True)
    [line] = done.stdout.splitlines()
    assert line.startswith("worker-3 1 losses time=")
    assert "\x1b" not in line


def test_wrong_arguments(tmp_path: Path, strata: Strata) -> None:
    """One line each, and the status of a wrong call."""
    run = busy_run(tmp_path / "run")
    for arguments in (["--table", "nope"], ["--from", "worker-1"], ["--from", "x:-1"]):
        done = strata("follow", run, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    assert strata("follow", tmp_path / "none").returncode != 0


def test_ctrl_c_and_a_closed_pipe(tmp_path: Path) -> None:
    """Status 130 without a traceback; a reader that ends is no error."""
    run = new_run(tmp_path / "run")
    Manifest("synth", "synthetic", time.time_ns(), "0").write(run)
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    command = [sys.executable, "-m", "dask_strata", "follow", str(run)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    waiting = subprocess.Popen(command, cwd=tmp_path, **pipes)
    assert '"table":"processes"' in waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, errors.strip()) == (130, "Interrupted.")
    closed = subprocess.Popen(command, cwd=tmp_path, **pipes)
    assert closed.stdout.readline()
    closed.stdout.close()
    scheduler.write("overheads", [{"time": T0}] * 5000)
    scheduler.end()
    errors = closed.stderr.read()
    closed.stderr.close()
    assert (closed.wait(60), errors) == (0, "")
