"""Tables of commands on terminals of several widths, and elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from dask_strata import open_run
from dask_strata.analysis.map import metadata_map
from dask_strata.report.map import print_map
from dask_strata.run.finalise import finalise
from tests.conftest import wait_until
from tests.examples.test_image_processing import Strata
from tests.support.synthetic import Process, life, new_run

WIDTHS = (60, 80, 120, 200)

#: A key that is longer than most terminals are wide, and one with the same begin and end.
LONG = "('random_sample-" + "0f3c9a17" * 9 + "', 0, 12)"
SHORT = "sum-1"

Screen = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finalised run in a folder of runs, of two tasks: of a minute, and of 18.7 µs."""
    runs = tmp_path_factory.mktemp("cwd") / "runs"
    runs.mkdir()
    folder = new_run(runs / "2026-11-26T10-00-00-pipeline-0a1b2c3d")
    scheduler = Process(folder, "scheduler-1", address="tcp://10.0.0.1:8786")
    worker = "tcp://10.20.30.40:40123"
    rows = life(LONG, 1, 61, worker) + life(SHORT, 2, 2.0000187, worker)
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda r: r["time"]))
    scheduler.end()
    Process(folder, "worker-1", address=worker, name="w", nthreads=2).end()
    finalise(folder)
    return folder


@pytest.fixture
def screen(run: Path, tmp_path: Path) -> Screen:
    """Return the lines that a command leaves on a tmux terminal of a width."""
    if shutil.which("tmux") is None:
        pytest.skip("NOT TESTED: tables on a terminal: tmux is not installed")

    def lines(width: int, *arguments: str) -> list[str]:
        # A server that is being ended does not start another session.
        tmux = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / f"tmux-{secrets.token_hex(4)}")]
        done = tmp_path / "done"
        done.unlink(missing_ok=True)
        script = tmp_path / "script.py"
        command = [sys.executable, "-m", "dask_strata", *arguments]
        script.write_text(
            "import subprocess, pathlib\n"
            f"subprocess.run({command!r}, cwd={str(run.parents[1])!r})\n"
            f"pathlib.Path({str(done)!r}).touch()\n"
            "input()\n"
        )
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "TMUX")}
        size = ["-x", str(width), "-y", "100"]
        start = [*tmux, "new-session", "-d", *size, sys.executable, str(script)]
        subprocess.run(start, check=True, env=env)
        try:
            wait_until(done.exists, what="the command")
            shown = subprocess.run(
                [*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True, env=env
            )
        finally:
            subprocess.run([*tmux, "kill-server"], check=False, env=env)
        return [line for line in shown.stdout.splitlines() if line.strip()]

    return lines


@pytest.mark.parametrize("width", WIDTHS)
def test_tasks_have_the_columns_for_which_there_is_space(width: int, screen: Screen) -> None:
    """A row is a line, numbers are whole and have units, and what is hidden is named."""
    found = screen(width, "tasks", "latest", "--sort", "compute_seconds")
    head, first, second = found[:3]
    assert all(cell_len(line) <= width for line in found)
    assert head.split()[0] == "key"
    assert "compute_seconds" in head
    assert "60 s" in first
    assert "0.0187 ms" in second
    assert second.startswith(SHORT)
    key = first.split("  ")[0]
    begin, _, end = key.partition("…")
    assert LONG.startswith(begin)
    assert LONG.endswith(end)
    assert len(key) >= 14
    hidden = " ".join(found[3:]).partition("not shown: ")[2]
    every = ("state", "worker", "nbytes", "n_attempts", "wait_seconds", "typename", "cpu_seconds")
    for column in every:
        assert (column in head.split()) != (column in hidden.partition(" (")[0].split(", ")), column
    assert ("--wide" in hidden) == bool(hidden)


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_and_queries(width: int, screen: Screen) -> None:
    """The name of a run keeps its id; the columns of a query are kept from left to right."""
    found = screen(width, "list")
    assert all(cell_len(line) <= width for line in found)
    assert found[1].split()[0] == "1"
    assert found[1].split()[1].endswith("0a1b2c3d")
    sql = "select key, compute_seconds, started, worker, key as again, nbytes from tasks"
    found = screen(width, "query", "latest", sql)
    assert all(cell_len(line) <= width for line in found)
    assert found[0].split()[:2] == ["key", "compute_seconds"]
    rest = " ".join(found[3:])
    assert ("not shown: " in rest) == (len(found[0].split()) < 6)


def test_the_map_has_whole_names(screen: Screen, run: Path) -> None:
    """No name of a table is broken, and each row has its step, layer and level."""
    cells = metadata_map(open_run(run))
    names = {name for cell in cells if not cell.by_choice for name in cell.rows}
    places = {word for cell in cells for word in f"{cell.layer} {cell.level}".split()}
    out = {width: Console(width=width, file=io.StringIO()) for width in WIDTHS}
    for console in out.values():
        print_map(cells, console)
    shown = {width: console.file.getvalue().splitlines() for width, console in out.items()}
    shown[60] = screen(60, "map", "latest")
    for width, found in shown.items():
        assert all(cell_len(line) <= width for line in found)
        assert names | places <= set(re.findall(r"[a-z_]+", "\n".join(found)))


def test_options_of_tables(screen: Screen, strata: Strata, run: Path) -> None:
    """`--raw` has exact numbers, `--columns` chooses, `--wide` shortens nothing."""
    found = screen(80, "tasks", "latest", "--raw", "--columns", "compute_seconds,key")
    assert found[0].split() == ["compute_seconds", "key"]
    assert any(line.split()[0].startswith("1.87") and "e-05" in line for line in found[1:3])
    wide = screen(80, "tasks", "latest", "--wide")
    assert LONG in "".join(wide)
    assert "n_dependents" in "".join(wide)
    assert "not shown" not in "".join(wide)
    names = strata("tasks", run, "--wide", check=True).stdout.splitlines()[0].split("\t")
    assert {"key_type", "n_dependents", "io_seconds"} <= set(names)
    assert "user" in strata("list", run, "--wide", check=True).stdout.splitlines()[0].split("\t")
    listed = strata("list", run, "--columns", "user,number", check=True).stdout.splitlines()
    assert listed[0] == "user\tnumber"
    twice = strata("tasks", run, "--columns", "key,key", check=True)
    assert twice.stdout.splitlines()[0] == "key"
    wrong = strata("tasks", run, "--columns", "key,sate")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: No column sate.\nDid you mean state?")
    for form in ("json", "csv"):
        out = strata("tasks", run, "--columns", "state,key", "--format", form, check=True).stdout
        names = list(json.loads(out)[0]) if form == "json" else out.splitlines()[0].split(",")
        assert names == ["state", "key"]


def test_the_summary_has_whole_numbers(screen: Screen) -> None:
    """Also on a narrow terminal each row is a line, and columns without space are named."""
    found = screen(50, "show", "latest")
    at = next(i for i, line in enumerate(found) if line.startswith("not shown: "))
    head = next(i for i, line in enumerate(found) if line.split()[0] == "tasks")
    assert all(cell_len(line) <= 50 for line in found[head:at])
    numbers = [text for row in found[head + 1 : at] for text in row.split("  ")[1:] if text]
    assert any(re.fullmatch(r" ?-?[0-9.]+ (s|ms)", text) for text in numbers)
    assert not any("…" in text for text in numbers)


def test_no_space_is_left_while_columns_are_hidden(screen: Screen) -> None:
    """The column that sorts and the first one have their space once."""
    head = screen(80, "tasks", "latest", "--sort", "compute_seconds")[0]
    assert {"state", "worker", "nbytes"} <= set(head.split())


def test_columns_that_a_table_has_on_demand_are_named(screen: Screen) -> None:
    """The widest terminal does not hide them in silence; the empty tags come after the name."""
    hidden = " ".join(screen(200, "tasks", "latest")[3:])
    assert re.search(r"not shown: key_type, .*, and [0-9]+ more \(--wide", hidden)
    head, *_ = found = screen(80, "list")
    assert "name" in head.split()
    assert "tags" in " ".join(found).partition("not shown: ")[2]


def test_sums_of_integers_are_numbers(screen: Screen, strata: Strata, run: Path) -> None:
    """DuckDB's wide integers and decimals are numbers, in JSON and with their units."""
    sql = "select sum(nbytes) as n_bytes, 0.5 as half, 12345678901234567890 as wide from tasks"
    found = json.loads(strata("query", run, sql, "--format", "json", check=True).stdout)
    assert found == [{"n_bytes": found[0]["n_bytes"], "half": 0.5, "wide": 12345678901234567890}]
    assert isinstance(found[0]["n_bytes"], int)
    row = screen(60, "query", "latest", sql)[1]
    assert row.split()[1] in ("B", "KiB")
    assert row.split()[-1] == "12345678901234567890"


def test_through_a_pipe_there_are_tabs_and_exact_values(strata: Strata, run: Path) -> None:
    """All columns of the terminal, whatever its width; notes are on standard error."""
    done = strata("tasks", run, "--sort", "compute_seconds", check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0][:3] == ["key", "state", "worker"]
    assert [row[0] for row in rows[1:]] == [LONG, SHORT]
    assert {len(row) for row in rows} == {len(rows[0])}
    at = rows[0].index("compute_seconds")
    assert [float(row[at]) for row in rows[1:]] == [60.0, pytest.approx(1.87e-05, rel=1e-3)]
    assert done.stderr == "2 tasks\n"


def test_states(strata: Strata, run: Path) -> None:
    """A state without tasks is an empty answer; states are accepted in any case, and as shown."""
    done = strata("tasks", run, "--state", "erred", "--format", "json", check=True)
    assert json.loads(done.stdout) == []
    assert len(strata("tasks", run, "--state", "Memory", check=True).stdout.splitlines()) == 3
    assert strata("tasks", run, "--state", "failed", check=True).stderr == "0 tasks\n"
    wrong = strata("tasks", run, "--state", "ered")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: No state ered.\nDid you mean erred? There are: ")
