"""Short names of runs, completion, and suggestions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata.run.finalise import finalise
from tests.examples.test_image_processing import Strata
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

NAMES = (
    "2026-11-24T10-00-00-load-1111aaaa",
    "2026-11-25T10-00-00-pipeline-2222bbbb",
    "2026-11-26T10-00-00-pipeline-3333cccc",
)

#: Each short name, and the run that it means.
SHORT = {
    "latest": NAMES[2],
    "1": NAMES[2],
    "3": NAMES[0],
    "2222": NAMES[1],
    "load": NAMES[0],
    "11-25": NAMES[1],
    "runs/latest": NAMES[2],
    f"runs/{NAMES[0]}": NAMES[0],
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the folder of three runs, below that in which commands run."""
    for name in NAMES:
        small_run(tmp_path / "runs" / name)
    finalise(tmp_path / "runs" / NAMES[2])
    return tmp_path / "runs"


@pytest.mark.parametrize("short", SHORT)
def test_short_names(short: str, runs: Path, strata: Strata) -> None:
    """A number is that of the list; a part of a name is unique."""
    assert SHORT[short] in strata("show", short, check=True).stdout
    assert runs.is_dir()


def test_names_of_several_runs_or_of_none(runs: Path, strata: Strata) -> None:
    """The runs that it may mean are listed; a similar name is suggested."""
    done = strata("show", "pipeline")
    assert done.returncode == 2
    assert done.stderr == (
        f"Error: 2 runs in runs have pipeline in their names.\nWhich one? {NAMES[2]}, {NAMES[1]}\n"
    )
    done = strata("show", "lates")
    assert done.returncode == 1
    assert done.stderr == (
        "Error: No run lates in runs.\nDid you mean latest? List runs with: dask-strata list\n"
    )
    assert strata("show", "4").stderr.startswith("Error: No run 4 in runs.\n")
    assert strata("tag", "22", "x").stderr.startswith("Error: No run 22 in runs.\n")
    assert strata("show", "2026").stderr.startswith("Error: 3 runs in runs have 2026 in their ")
    for typed, meant in {"lod": "load", "Load": "load", "LATEST": "latest"}.items():
        assert f"Did you mean {meant}?" in strata("show", typed).stderr
    done = strata("show", f"{runs}/nope")
    assert done.stderr == (
        f"Error: No run nope in {runs}.\nList runs with: dask-strata list {runs}\n"
    )


def test_the_folder_of_runs_is_that_of_the_settings(
    runs: Path, strata: Strata, tmp_path: Path
) -> None:
    """Short names are looked up where runs are recorded; `list` shows that folder."""
    other = tmp_path / "other"
    runs.rename(other)
    env = {**os.environ, "DASK_DASK_STRATA__RUNS": str(other)}
    assert NAMES[2] in strata("list", env=env, check=True).stdout
    assert NAMES[2] in strata("show", "latest", env=env, check=True).stdout
    nothing = "Error: No run latest: there is no run in runs.\nRecord a run: dask-strata demo\n"
    assert strata("show", "latest").stderr == nothing
    assert strata("open").stderr == nothing


def test_the_place_of_runs_is_a_url(
    runs: Path, strata: Strata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short names are those of `list` at the URL, whatever the folder runs/ contains."""
    store = ObjectStore()
    try:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.fs.put(str(runs / NAMES[1]), f"{BUCKET}/runs/{NAMES[1]}", recursive=True)
        store.fs.put(str(runs / NAMES[0]), f"{BUCKET}/runs/{NAMES[0]}", recursive=True)
        env = {**os.environ, "DASK_DASK_STRATA__RUNS": f"s3://{BUCKET}/runs"}
        rows = strata("list", env=env, check=True).stdout.splitlines()[1:]
        assert {row.split("\t")[0]: row.split("\t")[1] for row in rows} == {
            "1": NAMES[1],
            "2": NAMES[0],
        }
        for short, name in {"latest": NAMES[1], "2": NAMES[0], "load": NAMES[0]}.items():
            assert name in strata("show", short, env=env, check=True).stdout
        wrong = strata("show", "lod", env=env).stderr
        assert wrong.startswith(f"Error: No run lod in s3://{BUCKET}/runs.\nDid you mean load? ")
    finally:
        store.stop()


def test_a_name_that_is_a_path_is_that_path(runs: Path, strata: Strata, tmp_path: Path) -> None:
    """A folder in the current one comes before a short name."""
    (runs / NAMES[0]).rename(tmp_path / "latest")
    assert "latest" in strata("show", "latest", check=True).stdout


def test_commands_that_do_not_exist(strata: Strata) -> None:
    """A similar command is suggested."""
    done = strata("tsaks")
    assert done.returncode == 2
    hint = "Did you mean tasks? List commands with: dask-strata --help"
    assert done.stderr == f"Error: No such command: tsaks\n{hint}\n"


def test_tables_and_formats_that_do_not_exist(runs: Path, strata: Strata) -> None:
    """A similar table or format is suggested."""
    assert "\nDid you mean tasks? There are: " in strata("tables", "tsks").stderr
    wrong = strata("export", runs / NAMES[2], "--to", "cvs").stderr
    assert "\nDid you mean csv? Choose one of: " in wrong


@pytest.fixture
def complete(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return what bash offers at the end of a command line."""

    def offered(line: str) -> list[str]:
        words = line.split(" ")
        env = {
            **os.environ,
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_DASK_STRATA_COMPLETE": "bash_complete",
        }
        done = subprocess.run(
            [sys.executable, "-m", "dask_strata"],
            check=True, capture_output=True, text=True, env=env, cwd=tmp_path,
        )  # fmt: skip
        assert not done.stderr
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    return offered


@pytest.mark.usefixtures("runs")
def test_completion(complete: Callable[[str], list[str]]) -> None:
    """Commands, runs, prefixes, keys, workers, states, tables and columns are offered."""
    assert complete("dask-strata sho") == ["show"]
    assert complete("dask-strata show 2026-11-26") == [NAMES[2]]
    assert complete("dask-strata show lat") == ["latest"]
    assert complete("dask-strata show pip") == ["pipeline"]
    assert complete("dask-strata tasks latest --prefix a") == ["a"]
    assert complete("dask-strata tasks latest --worker tcp") == ["tcp://w:1"]
    assert complete("dask-strata tasks latest --state er") == ["erred"]
    assert complete("dask-strata tasks latest --sort compute_") == ["compute_seconds"]
    assert complete("dask-strata tasks latest --columns key,stat") == ["key,state"]
    assert complete("dask-strata list --columns run,insight_") == ["run,insight_seconds"]
    assert complete("dask-strata story latest b") == ["b-1"]
    assert complete("dask-strata tables graph_task") == ["graph_tasks"]


@pytest.mark.usefixtures("runs")
def test_completion_is_silent_where_it_knows_nothing(
    complete: Callable[[str], list[str]],
) -> None:
    """No run, a run that is not finalised, and no run of that name."""
    assert complete("dask-strata tasks --prefix a") == []
    assert complete(f"dask-strata tasks runs/{NAMES[0]} --prefix a") == []
    assert complete("dask-strata tasks nope --prefix a") == []


def test_open(runs: Path, strata: Strata, tmp_path: Path) -> None:
    """The newest run's page is written to the user's cache, and given to the browser."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    done = strata("open", env={**os.environ, "BROWSER": str(browser)}, check=True)
    page = Path(done.stdout.strip())
    assert page.name == f"{NAMES[2]}.html"
    assert 'id="verdict"' in page.read_text(encoding="utf-8")
    assert not page.parent.stat().st_mode & 0o077
    assert seen.read_text().strip() == page.as_uri()
    assert runs.is_dir()
    done = strata("open", "3", "--print", check=True)
    assert Path(done.stdout.strip()).name == f"{NAMES[0]}.html"


def test_a_script_without_a_cluster_is_told_how_to_get_one(strata: Strata, tmp_path: Path) -> None:
    """Dask's own schedulers in the script's threads are not recorded."""
    script = tmp_path / "script.py"
    script.write_text("import dask\nprint(dask.delayed(abs)(-1).compute())\n")
    done = strata("record", script, check=True)
    assert done.stdout == "1\n"
    assert "from distributed import Client; client = Client()" in done.stderr
    assert 'below if __name__ == "__main__":' in done.stderr
