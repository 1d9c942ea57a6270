"""What is stuck, in a terminal that follows the run, in Dask's dashboard, and after Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dask_strata
from dask_strata import open_run
from dask_strata.analysis.overview.stuck import stuck_of
from dask_strata.report.page.page import make_page
from tests.conftest import runs_in, wait_until
from tests.recorder.stuck import tasks
from tests.recorder.stuck.conftest import found, source_of
from tests.support.browsing import CHROMIUM, DRIVER, Browser, chromium

if TYPE_CHECKING:
    from distributed import Client

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("quick")]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A headless browser."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("NOT TESTED: Chromium is not installed")
    yield from chromium()


def test_dasks_dashboard_has_what_is_stuck(
    shared: Client, runs: Path, tmp_path: Path, browser: Browser
) -> None:
    """The page names the task and its line, without making the key HTML, and updates itself."""
    released = tmp_path / "released"
    with dask_strata.record(runs, client=shared) as run:
        wait_until(lambda: source_of(shared).checked)
        browser.driver.get(shared.dashboard_link.replace("/status", "/strata"))
        text = "return document.body.innerText"
        browser.until(f"{text}.includes('Nothing is stuck. Checked')")
        stuck = shared.submit(tasks.step, 0, str(released), key=HOSTILE)
        line = f"hang (tasks.py:{tasks.line_of(tasks.hang)})"
        browser.until(f"{text}.includes({line!r})")
        shown = browser.js(text)
        assert f"{HOSTILE} has run for" in shown
        assert browser.js("return document.images.length") == 0
        page = make_page(open_run(run.path))
        assert "Stuck now" in page
        assert line in page
        assert HOSTILE not in page
        released.touch()
        stuck.result()
        browser.until(f"{text}.includes('Nothing is stuck. Checked')")


@pytest.mark.release
def test_a_followed_run_has_a_line_when_something_is_stuck(
    shared: Client, runs: Path, tmp_path: Path
) -> None:
    """Without a terminal, one line names what is stuck, and one its end."""
    released = tmp_path / "released"
    with dask_strata.record(runs, client=shared) as run:
        stuck = shared.submit(tasks.step, 0, str(released), key="hangs")
        found(shared, lambda row: row["key"] == "hangs")
        command = [sys.executable, "-m", "dask_strata", "show", "--follow", str(run.path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("stuck now: hangs has run for"):
                released.touch()
            if line.startswith("nothing is stuck any more"):
                break
        stuck.result()
    process.communicate(timeout=120)
    assert sum(line.startswith("stuck now") for line in lines) == 1
    assert lines[-1].startswith("nothing is stuck any more")


INTERRUPTED = """
    import sys
    import time
    from distributed import Client, LocalCluster
    from dask_strata.recorder.stuck import durations, running, source

    source._INTERVAL_SECONDS = 0.5
    running.LEAST_SECONDS = durations._NONE_SECONDS = 1.0

    def hang():
        while True:
            time.sleep(0.01)

    if __name__ == "__main__":
        with LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            client.submit(hang, key="hangs").result()
"""


@pytest.mark.release
def test_after_ctrl_c_the_first_screen_has_what_was_stuck(
    script: Callable[..., Path], runs: Path, strata: Callable[..., Any]
) -> None:
    """A run that was interrupted because it hung shows what hung then."""
    path = script(INTERRUPTED)
    command = [sys.executable, "-m", "dask_strata", "record", "-o", str(runs), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def hung() -> bool:
        return any(run.rows("select * from stuck limit 1") for run in runs_in(runs))

    wait_until(hung)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    [run] = runs_in(runs)
    stuck = stuck_of(run, "cancelled")
    assert stuck is not None
    assert not stuck.present
    shown = strata("show", run.path, check=True).stdout
    assert "Stuck when it ended" in shown
    assert "hangs has run for" in shown
