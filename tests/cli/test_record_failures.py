"""`dask-strata record`: the exception that ended a script is on record and on the first screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.recorded import Script, Strata, only_run

pytestmark = pytest.mark.long

SCRIPT = """
    import sys
    from distributed import Client, LocalCluster

    def root(x):
        if x == 3:
            raise ValueError(f"negative sqrt in part {x}")
        return x

    def use(x):
        return x

    if __name__ == "__main__":
        with LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            roots = client.map(root, range(5), pure=False)
            used = client.map(use, roots, pure=False)
            if sys.argv[1] == "task":
                client.gather(used)
            client.gather(used, errors="skip")
            if sys.argv[1] == "script":
                raise KeyError("column of no table")
            if sys.argv[1] == "interrupt":
                raise KeyboardInterrupt
"""


def first_screen(strata: Strata, runs: Path) -> str:
    """Return the first screen of the only run, with single spaces."""
    return " ".join(strata("show", only_run(runs).path, check=True).stdout.split())


def test_the_exception_of_a_task(strata: Strata, script: Script, runs: Path) -> None:
    """Type, message, task and line, and how many tasks could not run because of it."""
    path = script(SCRIPT)
    assert strata("record", "-o", runs, path, "task").returncode == 1
    run = only_run(runs)
    assert run.script["exception"] == "ValueError"
    assert run.script["exception_message"] == "negative sqrt in part 3"
    screen = first_screen(strata, runs)
    assert screen.startswith("script.py failed (exit 1) 10 tasks")
    assert "ValueError: negative sqrt in part 3 root-" in screen
    assert "script.py:7 (1 task; 1 could not run)" in screen
    [first, *_] = json.loads(strata("show", run.path, "--format", "json").stdout)["insights"]
    assert (first["cause"], first["grave"]) == ("exception", True)
    assert not list(runs.glob(".end-*"))


def test_the_exception_of_the_script_comes_before_those_of_tasks(
    strata: Strata, script: Script, runs: Path
) -> None:
    """A task had failed before, which the script accepted."""
    path = script(SCRIPT)
    assert strata("record", "-o", runs, path, "script").returncode == 1
    found = only_run(runs).insights()
    assert [insight.cause for insight in found[:2]] == ["exception", "exception"]
    assert found[0].text == "KeyError: 'column of no table': the script ended (script.py:23)"
    assert found[1].text.startswith("ValueError: negative sqrt in part 3")


def test_an_interrupted_script_was_cancelled(strata: Strata, script: Script, runs: Path) -> None:
    """Ctrl-C is no failure."""
    path = script(SCRIPT)
    assert strata("record", "-o", runs, path, "interrupt").returncode == 130
    assert first_screen(strata, runs).startswith("script.py cancelled (exit 130)")
    assert only_run(runs).insights()[0].text.startswith("ValueError")


KILLED = """
    import os
    import dask
    from distributed import Client, LocalCluster

    def die(x):
        os._exit(3)

    if __name__ == "__main__":
        dask.config.set({"distributed.scheduler.allowed-failures": 0})
        with LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster, Client(cluster) as client:
            client.submit(die, 1, pure=False).result()
"""


def test_a_killed_task_that_ended_the_script_is_one_exception(
    strata: Strata, script: Script, runs: Path
) -> None:
    """The scheduler made the exception: the record of the task has its name alone."""
    assert strata("record", "-o", runs, script(KILLED)).returncode == 1
    assert only_run(runs).script["exception"] == "KilledWorker"
    causes = [insight.cause for insight in only_run(runs).insights()]
    assert causes[0] == "killed-task"
    assert "exception" not in causes
    assert "KilledWorker die-" in first_screen(strata, runs)


def test_exceptions_can_be_left_out(strata: Strata, script: Script, runs: Path) -> None:
    """Without errors in the record, the script's is not recorded either."""
    path = script(SCRIPT)
    strata("record", "-o", runs, "--leave-out", "errors", path, "task")
    assert "exception" not in only_run(runs).script
    for file in only_run(runs).path.rglob("*"):
        assert not file.is_file() or b"negative sqrt in part 3" not in file.read_bytes()
