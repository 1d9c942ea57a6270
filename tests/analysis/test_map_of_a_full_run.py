"""A run with all recording options and imported files: no cell of the map is empty."""

from __future__ import annotations

import cProfile
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from dask_strata import Run, open_run
from dask_strata.cli.recording import after_record
from tests.conftest import assert_whole, rows, runs_in

pytestmark = pytest.mark.long

pytest.importorskip("darshan", reason="PyDarshan is not installed: dask-strata[darshan]")

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "image_processing.py"
LOGS = ROOT / "tests" / "data" / "darshan" / "dxt_v2_threads" / "logs"

Strata = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the mini-app, recorded and profiled, whose workers ended by themselves.

    Dask kills a worker that needs more than 4 s to end. A profiled one may need longer on a busy
    machine, and the profile is then missing; so the mini-app is recorded up to three times.
    """
    options = ("--images", "4", "--size", "64", "--folder", "work", "--report-dir", "reports")
    command = [sys.executable, "-m", "dask_strata", "record", "--yappi", "wall", "-o", "runs"]
    for _ in range(3):
        folder = tmp_path_factory.mktemp("every")
        done = subprocess.run(
            [*command, str(APP), *options],
            cwd=folder,
            check=False,
            timeout=200,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        if "Worker process still alive" not in done.stderr:
            break
    (run,) = runs_in(folder / "runs")
    return run


@pytest.fixture
def run(recorded: Run, tmp_path: Path) -> Run:
    """Return a copy of the run, to add to."""
    return open_run(shutil.copytree(recorded.path, tmp_path / "run"))


def test_every_cell_has_rows(recorded: Run, run: Run, strata: Strata) -> None:
    """Every cell has rows, and the map marks the tables of imported Darshan logs."""
    assert_whole(recorded)
    told = strata("import", "--into", run.path, "--others", LOGS, check=True)
    assert "nor its time: kept" in told.stdout
    cells = json.loads(strata("map", run.path, "--format", "json", check=True).stdout)
    assert len(cells) == 9
    for cell in cells:
        assert cell["total"] > 0, cell
    (process,) = [cell for cell in cells if cell["level"] == "process"]
    assert set(process["imported"]) == {
        "darshan_logs",
        "darshan_counters",
        "darshan_segments",
        "io_segments",
        "io_totals",
    }
    # The mini-app has no GPU, its tasks print nothing, and gilknocker is off in tests.
    empty = {name for name, n in process["rows"].items() if not n}
    assert empty <= {"gpu_samples", "gpu_attempts", "output_lines", "gil_contention"}
    (coroutine,) = [cell for cell in cells if cell["level"] == "coroutine"]
    assert min(coroutine["rows"].values()) > 0
    shown = strata("map", run.path, check=True).stdout
    assert "darshan_logs 6 (imported)" in shown
    assert strata("check", run.path).returncode == 0


def test_logs_that_are_found_after_a_recording_are_added(run: Run, tmp_path: Path) -> None:
    """Logs of the run's processes are added; others are counted and left out."""
    shutil.copytree(LOGS, tmp_path / "logs" / "2026" / "11")
    out = Console(record=True, width=200)
    after_record(run.path, tmp_path / "logs", out)
    said = out.export_text()
    assert "6 logs that match neither this run's processes nor its time" in said
    after_record(run.path, tmp_path / "nothing", out)
    assert "wrote no log" in out.export_text()


def test_whatever_an_import_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status of `record` is the script's, whatever the logs are like."""

    def fail(*_: object) -> None:
        raise OverflowError("too [far]")

    monkeypatch.setattr("dask_strata.importers.registry.add_files", fail)
    out = Console(record=True, width=200)
    after_record(tmp_path, LOGS, out)
    assert out.export_text() == "dask-strata: Darshan's logs were not added to the run: too [far]\n"


def test_profiles_are_added_to_a_run(run: Run, strata: Strata, tmp_path: Path) -> None:
    """Functions of a pstat file are added once, with the name of the file."""
    profile = cProfile.Profile()
    profile.runcall(json.dumps, {"a": 1})
    profile.dump_stats(tmp_path / "mine.pstat")
    before = len(run.functions)
    told = strata("import", "--into", run.path, tmp_path / "mine.pstat", check=True)
    assert "of 1 file added" in told.stdout
    run = open_run(run.path)
    found = rows(run, "select name, ncall, process from functions where file like '%mine.pstat'")
    assert ("dumps", 1) in {(r["name"], r["ncall"]) for r in found}
    assert {r["process"].partition("-")[0] for r in found} == {"import"}
    assert len(run.functions) == before + len(found)
    again = strata("import", "--into", run.path, tmp_path / "mine.pstat", check=True)
    assert "1 file already in the run" in again.stdout
    assert strata("check", run.path).returncode == 0


def test_profiles_that_the_run_saved_itself_are_not_counted_twice(run: Run, strata: Strata) -> None:
    """Profiles that the run saved are skipped: their functions are in the tables."""
    saved = run.path / "profiles"
    assert {p.suffix for p in saved.iterdir()} == {".pstat", ".callgrind"}
    before = len(run.functions)
    told = strata("import", "--into", run.path, saved, check=True)
    assert "left out because the run itself saved them" in told.stdout
    assert len(open_run(run.path).functions) == before


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (("pickled.ystat", pickle.dumps({"a": 1})), "pickle"),
        (("cut.pstat", b"{)\x03"), "no pstat file"),
        (("empty.pstat", b""), "empty"),
        (("bad.callgrind", b"version: 1\nevents: Ticks\nfn=(1\n+x\n"), "cannot be read"),
    ],
)
def test_profiles_that_cannot_be_read_are_named(
    run: Run, strata: Strata, tmp_path: Path, file: tuple[str, bytes], message: str
) -> None:
    """The command names the file and the reason with status 1; so does `check`."""
    name, content = file
    (tmp_path / name).write_bytes(content)
    done = strata("import", "--into", run.path, tmp_path / name)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    losses = rows(open_run(run.path), "select what, reason from losses")
    assert [loss["what"] for loss in losses] == [name]
    assert strata("check", run.path).returncode == 1
