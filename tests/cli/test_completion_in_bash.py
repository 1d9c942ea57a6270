"""Completion in an interactive bash, which has words of its own and inserts what it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata.cli.bash import StrataBash, register
from dask_strata.run.finalise import finalise
from tests.conftest import wait_until
from tests.support.synthetic import Process, life, new_run

#: What is typed before Tab, and the line after it.
TYPED = {
    "dask-strata tasks latest --worker tcp://w": "dask-strata tasks latest --worker tcp://w:1",
    "dask-strata story latest \"('t": "dask-strata story latest \"('tup-le', 0, 1)\"",
    "dask-strata story latest a": 'dask-strata story latest "a b [c]-5"',
    "dask-strata story latest d": "dask-strata story latest 'd$(touch x)'",
    "dask-strata show syn": "dask-strata show synthetic",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder above that of a run whose keys need quotes."""
    folder = tmp_path_factory.mktemp("bash")
    run = new_run(folder / "runs" / "2026-11-26T10-00-00-synthetic-0a1b2c3d")
    scheduler = Process(run, "scheduler-1", address="tcp://s:1")
    keys = ("('tup-le', 0, 1)", "a b [c]-5", "d$(touch x)", "e\nf", "g\x1b[31m")
    rows = [row for i, key in enumerate(keys) for row in life(key, i, i + 1, "tcp://w:1")]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    Process(run, "worker-1", address="tcp://w:1", name="w", nthreads=2).end()
    finalise(run)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("typed", TYPED)
def test_tab(typed: str, folder: Path, tmp_path: Path) -> None:
    """Addresses have colons; keys have quotes, brackets and spaces, and are inert."""
    if shutil.which("tmux") is None:
        pytest.skip("NOT TESTED: completion in bash: tmux is not installed")
    rc = tmp_path / "bashrc"
    rc.write_text(
        f"PATH={Path(sys.executable).parent}:$PATH\nPS1='$ '\n"
        'eval "$(_DASK_STRATA_COMPLETE=bash_source dask-strata)"\necho ready\n'
    )
    tmux = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / "tmux")]

    def shown() -> str:
        command = [*tmux, "capture-pane", "-p"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    start = ["new-session", "-d", "-x", "150", f"bash --noprofile --rcfile {rc}"]
    subprocess.run([*tmux, *start], check=True, cwd=folder, env={**os.environ, "TMUX": ""})
    try:
        wait_until(lambda: "ready" in shown(), what="bash")
        subprocess.run([*tmux, "send-keys", "-l", typed], check=True)
        subprocess.run([*tmux, "send-keys", "Tab"], check=True)
        wait_until(lambda: f"$ {TYPED[typed]}" in shown(), what=TYPED[typed])
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


@pytest.fixture
def complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return what bash is given for a line."""
    from dask_strata.cli import cli

    register()
    monkeypatch.chdir(folder)

    def given(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        offered = StrataBash(cli, {}, "dask-strata", "_DASK_STRATA_COMPLETE").complete()
        return [text.removeprefix("plain,") for text in offered.splitlines() if "none" not in text]

    return given


def test_keys_are_quoted_or_left_out(complete: Callable[[str], list[str]]) -> None:
    """Control characters would change the terminal, and a line break would end a completion."""
    assert sorted(complete("dask-strata story latest ")) == [
        "\"('tup-le', 0, 1)\"",
        '"a b [c]-5"',
        "'d$(touch x)'",
    ]
    assert complete('dask-strata story latest "d') == []
    assert complete("dask-strata story latest 'd") == ["d$(touch x)"]
    assert complete("dask-strata story latest \"('tup-le', ") == ["('tup-le', 0, 1)"]
    assert complete("dask-strata tasks latest --worker tcp:") == ["//w:1"]
