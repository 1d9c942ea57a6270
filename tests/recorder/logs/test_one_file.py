"""Workers whose two streams are one file or elsewhere, and what they print before they register."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import dask_strata
from dask_strata import Run
from dask_strata.recorder.logs import pipes
from tests.conftest import rows, runs_in, wait_until

IN_TURNS = """
import os
import sys
from distributed import Client


def write():
    for i in range(500):
        os.write(1 + i % 2, f"turn {i}\\n".encode())
        if i % 50 == 0:
            sys.stderr.write(f"err {i}\\n")
            print("out", i, flush=True)


if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        client.submit(write).result()
"""

PRELOAD = """
import os
import sys

os.write(1, b"begins\\n")
print("cannot start", file=sys.stderr, flush=True)
{}

def dask_setup(worker):
    os.write(1, b"sets up\\n")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that writes to both streams in turns."""
    path = tmp_path / "script.py"
    path.write_text(IN_TURNS, encoding="utf-8")
    return path


def _lines_of_one_file(command: list[str], script: Path) -> list[str]:
    output = script.with_name("output")
    with output.open("wb") as file:
        subprocess.run(
            [*command, str(script)],
            cwd=script.parent,
            env=os.environ,
            stdout=file,
            stderr=file,
            check=True,
            timeout=120,
        )
    lines = output.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(("turn", "err", "out"))]


def test_the_order_of_two_streams_in_one_file_stays(script: Path) -> None:
    """What goes to one file comes in the order in which it was written, and is on record so."""
    record = [sys.executable, "-m", "dask_strata", "record", "-q", "--no-compact", "-o", "runs"]
    plain = _lines_of_one_file([sys.executable], script)
    assert len(plain) == 520
    assert _lines_of_one_file(record, script) == plain
    [run] = runs_in(script.parent / "runs")
    found = rows(run, "select message, stream from logs where level is null order by number")
    written = [row for row in found if row["message"].startswith(("turn", "err", "out"))]
    assert [row["message"] for row in written] == plain
    assert {row["stream"] for row in written} == {"output"}


def _lines(run: Run) -> list[tuple[str, str]]:
    found = rows(
        run,
        "select stream, message from logs where stream in ('stdout', 'stderr') order by number",
    )
    return [(row["stream"], row["message"]) for row in found]


def _preload(folder: Path, text: str) -> str:
    path = folder / "begins.py"
    path.write_text(PRELOAD.format(text), encoding="utf-8")
    return str(path)


def test_output_before_registration_is_on_record(tmp_path: Path, runs: Path) -> None:
    """What a worker's preloads print is on record as the worker's; the nanny is as it was."""
    preload = _preload(tmp_path, "")
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", preload=[preload]) as cluster,
        Client(cluster) as client,
    ):
        with dask_strata.record(runs, client=client) as run:
            cluster.scale(1)
            [nanny] = wait_until(lambda: [*cluster.workers.values()])
            client.wait_for_workers(1)
            assert nanny.preload[1:] == [preload]
            pid = client.submit(os.getpid).result()
        assert (nanny.preload, nanny.env.get(pipes.FOLDER_VARIABLE)) == ([preload], None)
    lines = _lines(run)
    # Dask imports a preload that is a file, and then reloads it.
    assert [text for stream, text in lines if stream == "stdout"] == ["begins", "begins", "sets up"]
    assert [text for stream, text in lines if stream == "stderr"] == ["cannot start"] * 2
    [found] = rows(run, "select distinct process, worker from logs where message = 'begins'")
    [worker] = rows(run, f"select process, address from processes where pid = {pid}")
    assert (found["process"], found["worker"]) == (worker["process"], worker["address"])


def test_output_of_a_worker_that_cannot_start_is_on_record(tmp_path: Path, runs: Path) -> None:
    """It tells why; the name is that of its nanny."""
    preload = _preload(tmp_path, "os._exit(3)\n")
    written = {("stdout", "begins"), ("stderr", "cannot start")}
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", preload=[preload]) as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        cluster.scale(1)
        # Dask gives up, or starts the worker again and again.
        wait_until(lambda: {*_lines(run)} == written)
        cluster.scale(0)
    assert {*_lines(run)} == written
    assert rows(run, "select distinct name, role from logs where message = 'begins'") == [
        {"name": "0", "role": "worker"}
    ]


@pytest.mark.parametrize("early", [True, False], ids=["started during it", "there before"])
def test_output_to_a_file_of_the_workers_own_stays_there(
    tmp_path: Path, runs: Path, *, early: bool
) -> None:
    """A worker that has redirected its descriptors keeps them, and the record says so."""
    own = tmp_path / "own.txt"
    preload = _preload(tmp_path, f"os.dup2(os.open({str(own)!r}, os.O_CREAT | os.O_WRONLY), 1)\n")
    with (
        LocalCluster(n_workers=not early, dashboard_address=":0", preload=[preload]) as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        cluster.scale(1)
        client.wait_for_workers(1)
        client.submit(os.write, 1, b"to the file\n").result()
        client.submit(os.write, 2, b"to the nanny\n").result()
    assert own.read_text() == "sets up\nto the file\n"
    errors = [text for stream, text in _lines(run) if stream == "stderr"]
    assert errors == ["cannot start"] * 2 * early + ["to the nanny"]
    [loss] = rows(run, "from losses where what = 'output_lines'")
    assert loss["reason"] == "the worker writes to another file than its nanny"
