"""Last words of dying processes, floods of output, and forks that keep the descriptor."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dask_strata
from tests.conftest import rows, wait_until
from tests.support.processes import terminate

#: Bytes of a line in a flood, and lines of one: 100 MB.
LINE, LINES = 100, 1_000_000


def _segfault() -> None:
    os.write(1, b"last words\n")
    ctypes.string_at(0)


def _exit() -> None:
    os.write(2, b"last words without an end")
    os._exit(7)


def _killed() -> None:
    os.write(1, b"last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _lines(run: dask_strata.Run) -> list[dict[str, Any]]:
    return rows(run, "select stream, message, worker, process from logs "
                     "where stream in ('stdout', 'stderr') order by number")  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("die", [_segfault, _exit, _killed])
def test_last_words_are_on_record(die: Callable[[], None], runs: Path) -> None:
    """What a process wrote before its death is on record, with faulthandler's traceback."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        pid = client.submit(os.getpid, pure=False).result()
        failed = client.submit(die, key="die")
        wait_until(lambda: failed.status == "error")  # after 4 processes
        client.wait_for_workers(1)
    all_lines = _lines(run)
    assert sum("last words" in row["message"] for row in all_lines) == 4
    [process] = rows(run, f"select process from processes where role = 'worker' and pid = {pid}")
    found = [row for row in all_lines if row["process"] == process["process"]]
    assert sum("last words" in row["message"] for row in found) == 1
    traceback = "\n".join(row["message"] for row in found if row["stream"] == "stderr")
    assert ("Segmentation fault" in traceback and "_segfault" in traceback) == (die is _segfault)
    output = rows(run, "select line, terminated from output_lines where line like 'last words%'")
    assert output[0]["terminated"] == (die is not _exit)


@pytest.mark.long
def test_a_fork_that_keeps_the_descriptor_delays_nothing(
    tmp_path: Path,
) -> None:
    """The cluster closes while a grandchild has the descriptors, and its output goes on."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import subprocess, sys, time
        from distributed import Client, LocalCluster

        def fork():
            command = "import time; time.sleep(40); print('too late', flush=True)"
            print("before", flush=True)
            return subprocess.Popen([sys.executable, "-c", command]).pid

        if __name__ == "__main__":
            with LocalCluster(n_workers=1, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    pid = client.submit(fork).result()
                began = time.monotonic()
            print("closed", pid, round(time.monotonic() - began, 3), flush=True)
        """),
        encoding="utf-8",
    )
    out = tmp_path / "out.txt"
    strata_command = Path(sys.executable).with_name("dask-strata")
    command = [strata_command, "record", "-q", "--no-compact", "script.py"]
    with out.open("wb") as file:
        subprocess.run(command, cwd=tmp_path, stdout=file, check=True, timeout=35)
    first, last = out.read_text().splitlines()
    assert first == "before"
    _, pid, seconds = last.split()
    os.kill(int(pid), signal.SIGKILL)
    assert float(seconds) < 8


def _flood_descriptor(n: int) -> int:
    block = b"".join(b"%0*d\n" % (LINE - 1, i) for i in range(1_000))
    for _ in range(n // 1_000):
        view = memoryview(block)
        while view:
            view = view[os.write(1, view) :]
    os.write(1, b"the end\n")
    return n


def _flood_log(n: int) -> int:
    log = logging.getLogger("flood")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.NullHandler())
    text = "x" * 10_000
    for i in range(n):
        log.info("%d %s", i, text)
    log.handlers.clear()
    return n


@pytest.mark.long
def test_a_flood_is_bounded_and_counted(tmp_path: Path) -> None:
    """Of 100 MB a bounded part is on record, all bytes arrive, and the rest is counted exactly."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from distributed import Client, LocalCluster
        import dask_strata
        from tests.recorder.logs.test_deaths import LINES, _flood_descriptor, _flood_log

        if __name__ == "__main__":
            with (
                LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
                dask_strata.record("runs", client=client),
            ):
                began = time.monotonic()
                assert client.submit(_flood_descriptor, LINES).result() == LINES
                lines = time.monotonic() - began
                began = time.monotonic()
                assert client.submit(_flood_log, 10_000).result() == 10_000
                print(lines, time.monotonic() - began, file=sys.stderr)
        """),
        encoding="utf-8",
    )
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        subprocess.run([sys.executable, script], cwd=tmp_path, stdout=out, stderr=err, check=True)
    assert (tmp_path / "out").stat().st_size == LINE * LINES + len("the end\n")
    [folder] = (tmp_path / "runs").iterdir()
    run = dask_strata.open_run(folder)
    lost = {
        row["what"]: row["n"]
        for row in rows(run, "select what, sum(count)::bigint as n from losses group by what")
    }
    stdout = rows(run, "select line from output_lines where stream = 'stdout'")
    assert len(stdout) + lost["output_lines"] == LINES + 1
    assert len(stdout) < 100_000
    assert stdout[-1]["line"] == "the end"
    [logged] = rows(run, "select count(*) as n from log_records where logger = 'flood'")
    assert logged["n"] + lost["log_records"] == 10_000
    assert 0 < logged["n"] < 1_500
    assert "missing" not in {finding.severity for finding in run.check().findings}
    assert sum(path.stat().st_size for path in folder.rglob("*.seg")) < 20_000_000


@pytest.mark.long
def test_the_reader_may_be_gone(runs: Path) -> None:
    """A worker whose nanny is killed gets its own descriptors back, and ends by itself."""

    def print_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            os.write(2, b"still here\n")
            time.sleep(0.05)

    # `dask worker` is a nanny in a process of its own, whose worker ends a moment after it.
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_strata.record(runs, client=client) as run,
    ):
        command = [Path(sys.executable).with_name("dask"), "worker", cluster.scheduler_address]
        nanny = subprocess.Popen(
            [*map(str, command), "--nthreads", "1", "--no-dashboard"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(1)
            future = client.submit(print_for, 2.0)
            wait_until(lambda: any(client.processing().values()))
            nanny.kill()
            nanny.wait()
            wait_until(lambda: not client.scheduler_info()["workers"])
            assert future.status != "finished"
        finally:
            terminate(nanny)
    assert run.state == "complete"
