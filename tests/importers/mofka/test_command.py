"""``dask-strata import``: files of the Mofka-Dask coupler become a run, or an error and no run."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.errors import UnknownTaskError, UsageError
from dask_strata.importers.mofka.importer import find_files
from tests.conftest import rows, runs_in, wait_until
from tests.support.coupler_files import T0, W1, W2, added, put, text, write
from tests.support.coupler_runs import (
    COMMANDS,
    ROLES,
    X,
    Y,
    consumer,
    example_files,
    executed,
    findings,
    imported_run,
    invoke,
    one,
    run_of,
)


def test_the_command_makes_a_run(folder: Path, tmp_path: Path) -> None:
    """The command exits with 0, prints the run, and creates nothing but that run."""
    done = invoke("import", folder, "-o", tmp_path / "runs")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    (run,) = runs_in(tmp_path / "runs")
    assert done.stdout == f"{run.path}  18 rows, 2 duplicate transfers counted once\n"
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [run.path.name]
    assert (run.manifest.name, run.state) == ("csv", "imported")
    assert run.manifest.imported_from == str(folder)
    assert {p.name for p in run.path.iterdir()} == {"run.json", "parquet", "segments"}


def test_it_has_the_same_tables_as_a_recorded_run(folder: Path) -> None:
    """Tasks, attempts, transfers, workers and the graph agree with the files."""
    run = imported_run(folder)
    assert rows(run, "select key, key_type, state, worker, n_attempts from tasks") == [
        {
            "key": "('x', 0)",
            "key_type": "tuple",
            "state": "memory",
            "worker": W2,
            "n_attempts": 1,
        },
        {"key": "y-1", "key_type": "str", "state": "memory", "worker": W1, "n_attempts": 1},
    ]
    assert rows(run, "select worker, outcome, thread, nbytes from attempts order by start") == [
        {"worker": W2, "outcome": "memory", "thread": 140234, "nbytes": 28},
        {"worker": W1, "outcome": "memory", "thread": 140234, "nbytes": 28},
    ]
    assert rows(run, "select key, dependency from graph_edges") == [
        {"key": "y-1", "dependency": "('x', 0)"}
    ]
    assert rows(run, "select key from graph_tasks where requested") == [{"key": "y-1"}]
    assert rows(run, "select client, action from clients") == [
        {"client": "Client-1", "action": "connect"}
    ]
    assert rows(run, "select n_tasks, n_keys, client from submissions") == [
        {"n_tasks": 2, "n_keys": 1, "client": "Client-1"}
    ]
    assert rows(run, "select worker, host, n_attempts from workers order by worker") == [
        {"worker": W1, "host": "10.0.0.2", "n_attempts": 1},
        {"worker": W2, "host": "10.0.0.3", "n_attempts": 1},
    ]
    assert run.check().ok


@pytest.mark.long
def test_every_command_works_on_it(folder: Path, tmp_path: Path) -> None:
    """show, map, tasks, story, query, check, compact and list accept an imported run."""
    run = imported_run(folder)
    for name, *options in [*COMMANDS, ["story", "y-1"], ["story", "('x', 0)"], ["compact"]]:
        done = invoke(name, run.path, *options)
        assert done.exit_code == 0, (name, done.output)
    assert "y-1" in invoke("tasks", run.path).stdout
    assert "imported" in invoke("show", run.path).stdout
    assert "worker_transfer.csv" in invoke("check", run.path).stdout
    story = invoke("story", run.path, "('x', 0)").stdout
    assert W2 in story
    assert "executing" in story
    listed = invoke("list", tmp_path / "runs")
    assert listed.exit_code == 0
    assert "imported" in listed.stdout
    again = open_run(run.path)
    assert one(again, "select count(*) from tasks") == 2
    assert again.check().ok


def test_the_python_side_works_on_it(folder: Path) -> None:
    """Tables convert to Arrow, pandas and Polars; a task is found by its key, tuple or text."""
    run = imported_run(folder)
    assert list(run.tasks.to_pandas()["key"]) == ["('x', 0)", "y-1"]
    assert len(run.transfers.to_polars()) == len(run.transfers.to_arrow()) == 1
    task = run.task(X)
    assert (task.key, task.state) == ("('x', 0)", "memory")
    assert run.task("('x', 0)").facts == task.facts
    assert [t["total_bytes"] for t in task.transfers] == [100]
    assert run.task(Y).dependencies == ["('x', 0)"]
    assert W2 in str(task)
    with pytest.raises(UnknownTaskError):
        run.task(("x", 1))


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_any_subset_of_files_is_a_run(n: int, tmp_path: Path) -> None:
    """Any subset of the files is imported, and check names exactly the absent files."""
    everything = example_files()
    for subset in itertools.combinations(ROLES, n):
        folder = write(tmp_path / "-".join(subset), {role: everything[role] for role in subset})
        run = imported_run(folder)
        given_rows = sum(len(everything[role]) for role in subset)
        assert one(run, "select sum(rows)::int from imports") == given_rows
        lines = findings(run)
        absent = [line for line in lines if "the file does not exist" in line]
        assert len(absent) == len(ROLES) - n
        for role in set(ROLES) - set(subset):
            assert [line for line in absent if f"{role}.csv" in line]
        assert bool([line for line in lines if line.startswith("missing")]) == (n < len(ROLES))
        keys = {row["key"] for row in rows(run, "select key from tasks")}
        assert keys <= {"('x', 0)", "y-1"}


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_commands_work_on_a_run_of_one_file(role: str, tmp_path: Path) -> None:
    """With one file alone, no command fails; check exits with 1, as files are missing."""
    run = run_of(tmp_path, **{role: example_files()[role]})
    for name, *options in COMMANDS:
        done = invoke(name, run.path, *options)
        assert done.exit_code == (1 if name == "check" else 0), (name, done.output)
    assert invoke("list", run.path.parent).exit_code == 0


@pytest.mark.long
def test_two_imports_are_two_runs(folder: Path, tmp_path: Path) -> None:
    """Another import makes another run; several folders at once make one run each."""
    write(tmp_path / "other", example_files())
    first = imported_run(folder)
    done = invoke("import", folder, tmp_path / "other", "-o", tmp_path / "runs", "--name", "n")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 2
    assert len({run.manifest.run_id for run in runs_in(tmp_path / "runs")}) == 3
    assert one(first, "select count(*) from tasks") == 2


def test_a_folder_without_such_files(tmp_path: Path) -> None:
    """A folder without any of the files is an error that lists the expected names."""
    put(tmp_path / "csv" / "other.csv", "a,b\n1,2\n")
    consumer(tmp_path / "csv")
    done = invoke("import", tmp_path / "csv", "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert "none of the coupler's files" in done.stderr
    assert "scheduler_transition.csv" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["nowhere", "csv/worker.csv"])
def test_not_a_folder(name: str, folder: Path, tmp_path: Path) -> None:
    """A file, or nothing, instead of a folder is a usage error before anything is imported."""
    done = invoke("import", folder, tmp_path / name, "-o", tmp_path / "runs")
    assert done.exit_code == 2
    assert str(tmp_path / name) in done.stderr
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError):
        find_files(tmp_path / name)


@pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe", "loop"])
def test_a_file_that_cannot_be_read(kind: str, folder: Path, tmp_path: Path) -> None:
    """A folder, pipe or link under the name of a file is an error that names it."""
    path = folder / "worker.csv"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "loop" else tmp_path / "nowhere")
    done = invoke("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.output
    assert not list(tmp_path.glob("runs/*"))
    assert not list(tmp_path.glob("runs/.*"))


def test_a_folder_of_runs_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    """If the run cannot be made, the error has two lines, and the files are untouched."""
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    put(tmp_path / "file", "")
    for runs in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        done = invoke("import", folder, "-o", runs)
        assert done.exit_code == 1
        assert f"{runs} cannot be written" in done.stderr
        assert "Give another folder with -o" in done.stderr
        assert len(done.stderr.splitlines()) == 2
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A folder whose import takes long: one file of many rows with times as text."""
    text_rows = text("worker_transition", executed("k", T0, T0 + 1, W1), new=True).split("\n")
    iso = "\n".join([*[row for row in text_rows[1:] if "+00:00" in row] * 500_000, ""])
    put(tmp_path / "csv" / "worker_transition.csv", text_rows[0] + "\n" + iso)
    return tmp_path / "csv"


def stopped(endless: Path, runs: Path, number: int) -> tuple[int, str]:
    """Import in a process, send it a signal once its folder exists; return status and output."""
    runs.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dask_strata", "import", str(endless), "-o", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: list(runs.glob(".import-*/parquet")), what="the folder of the import")
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_an_interrupt_leaves_nothing(endless: Path, tmp_path: Path) -> None:
    """Ctrl-C during an import leaves no folder behind, and no traceback on the screen."""
    status, output = stopped(endless, tmp_path / "runs", signal.SIGINT)
    assert status == 130
    assert "Traceback" not in output
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.long
def test_a_kill_leaves_nothing_that_looks_like_a_run(
    endless: Path, tmp_path: Path, strata: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """After kill -9 the list has no run, and another import works."""
    status, _ = stopped(endless, tmp_path / "runs", signal.SIGKILL)
    assert status == -signal.SIGKILL
    left = [p.name for p in (tmp_path / "runs").iterdir()]
    assert [name for name in left if name.startswith(".import-")] == left != []
    assert not runs_in(tmp_path / "runs")
    listed = strata("list", tmp_path / "runs")
    assert (listed.returncode, listed.stdout) == (1, "")
    assert "There is no run in" in listed.stderr
    write(tmp_path / "small", {"worker": [added(W1, T0)]})
    strata("import", tmp_path / "small", "-o", tmp_path / "runs", check=True)
    assert len(runs_in(tmp_path / "runs")) == 1


def test_a_file_without_readable_rows_is_a_failure(tmp_path: Path) -> None:
    """A file whose lines end in CR has no readable rows: exit status 1, and its name."""
    folder = write(tmp_path / "csv", example_files())
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r").replace(b"\r\r", b"\r"))
    done = invoke("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert "worker_transition.csv" in done.stderr
