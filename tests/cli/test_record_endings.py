"""`dask-strata record`: however a script ends, its status and its record are right."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata.analysis.summary import summarize
from dask_strata.config import read_settings
from dask_strata.recorder.launch import note_exit_status
from tests.cli.recorded import (
    Script,
    Strata,
    assert_all_ended,
    keys_of,
    only_run,
    shell_status,
)
from tests.conftest import assert_whole, rows, wait_until
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long


def test_a_script_that_raises_ends_as_without_recording(
    strata: Strata, script: Script, runs: Path, tmp_path: Path
) -> None:
    """An exception gives status 1 and the same traceback as unrecorded; the record is complete."""
    path = script("""
        from distributed import Client, LocalCluster

        with LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            client.submit(abs, -1, key="before").result()
            raise RuntimeError("what the user's code raised")
    """)
    alone = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    done = strata("record", "-o", runs, path)
    assert done.returncode == alone.returncode == 1
    assert "what the user's code raised" in alone.stderr
    # On a busy machine Dask's own complaint may follow the traceback, recorded or not.
    before, end, after = alone.stderr.partition("what the user's code raised\n")
    assert done.stderr.startswith(before + end)
    assert not after or "exception was never retrieved" in after
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"before"}


def test_the_status_of_sys_exit_is_kept(strata: Strata, script: Script, runs: Path) -> None:
    """`sys.exit(3)` with an open cluster gives status 3 and a complete record."""
    path = script("""
        import sys
        from distributed import Client

        if __name__ == "__main__":
            client = Client(n_workers=1, threads_per_worker=1, dashboard_address=":0")
            client.submit(abs, -1, key="before").result()
            sys.exit(3)
    """)
    done = strata("record", "-o", runs, path)
    assert done.returncode == 3
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert keys_of(run) == {"before"}


INTERRUPTED = """
    import os
    import sys
    import time
    from pathlib import Path

    from distributed import Client, LocalCluster

    if __name__ == "__main__":
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            first = [client.submit(abs, i, key=f"first-{i}") for i in range(20)]
            client.gather(first)
            slow = [client.submit(time.sleep, 0.05 + i / 1e9, key=f"slow-{i}") for i in range(2000)]
            slow[0].result()
"""


# The signal may come as soon as the file has a text.
HANDLED = (
    INTERRUPTED
    + """
            try:
                Path(sys.argv[1]).write_text(str(os.getpid()))
                client.gather(slow)
            except KeyboardInterrupt:
                print("interrupted", sum(client.gather(first)), flush=True)
                sys.exit(7)
"""
)


NOT_HANDLED = (
    INTERRUPTED
    + """
            Path(sys.argv[1]).write_text(str(os.getpid()))
            client.gather(slow)
"""
)


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [(HANDLED, 7, b"interrupted 190\n"), (NOT_HANDLED, 130, b"")],
    ids=["handled", "not handled"],
)
def test_an_interrupted_script_ends_as_without_recording(  # noqa: PLR0913
    script: Script,
    runs: Path,
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[bytes]],
    *,
    text: str,
    status: int,
    says: bytes,
) -> None:
    """An interrupt ends a computing script as unrecorded; the record is complete."""
    path = script(text)
    outcomes = []
    for number, before in enumerate([(), ("-m", "dask_strata", "record", "-o", runs)]):
        ready = tmp_path / f"ready-{number}"
        process = start(
            sys.executable,
            *before,
            path,
            ready,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda r=ready: r.exists() and r.read_text(), what="tasks that run")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        outcomes.append((shell_status(process.returncode), out))
        assert (b"KeyboardInterrupt" in err) == (not says), err.decode()
    assert outcomes == [(status, says)] * 2
    run = only_run(runs)
    assert_whole(run)
    assert_all_ended(run)
    assert {f"first-{i}" for i in range(20)} < keys_of(run)
    ended = rows(run, "select count(*) as n from tasks where prefix = 'slow' and state = 'memory'")
    assert 0 < ended[0]["n"] < 2000


def test_a_killed_script_leaves_a_run_with_a_finding(
    strata: Strata,
    script: Script,
    runs: Path,
    tmp_path: Path,
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """After SIGKILL the status is 137, the run can be opened, and `check` reports the kill."""
    ready = tmp_path / "ready"
    process = start(
        sys.executable, "-m", "dask_strata", "record", "-o", runs, script(NOT_HANDLED), ready
    )
    pid = int(wait_until(lambda: ready.exists() and ready.read_text(), what="tasks that run"))
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    assert shell_status(process.wait(60)) == 137
    run = only_run(runs)
    assert run.state == "cut"
    assert {f"first-{i}" for i in range(20)} < keys_of(run)
    last = rows(run, "select max(epoch(time)) as t from scheduler_transitions")[0]["t"]
    assert killed - 1 < last <= killed + 0.1
    done = strata("check", run.path)
    assert done.returncode == 1
    assert "was killed" in done.stdout
    assert not run.check().ok
    # Also a write may be cut, in its middle.
    assert not [
        f for f in run.check().incomplete if not re.search("was killed|cut in the middle", f.text)
    ]
    assert run.path.name in (tmp_path / "process-0.log").read_text()


def test_an_exit_status_that_cannot_be_recorded_is_reported(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that cannot be written is a warning; a removed one is nothing."""
    folder = small_run(runs / "run")
    segments = folder / "segments"
    segments.rename(folder / "moved")
    note_exit_status(folder, 3, read_settings())
    assert caplog.text == ""
    segments.write_text("a file, not a folder")
    note_exit_status(folder, 3, read_settings())
    assert "could not record the exit status" in caplog.text


def test_the_exit_status_is_on_record_and_shown(strata: Strata, script: Script, runs: Path) -> None:
    """The screen shows the exit status of a script that failed."""
    path = script("""
        from distributed import Client
        if __name__ == "__main__":
            with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
                client.submit(abs, -1).result()
            raise SystemExit(3)
    """)
    done = strata("record", "-o", runs, path)
    assert done.returncode == 3
    assert "failed (exit 3)" in done.stderr
    run = only_run(runs)
    assert run.script["exit_status"] == "3"
    [noted] = rows(
        run, "select (epoch_ns(max(start)) - epoch_ns(min(start))) / 1e9 as seconds from processes"
    )
    # The moment at which the command notes the status is not a part of the run.
    assert summarize(run).duration_seconds < noted["seconds"]
