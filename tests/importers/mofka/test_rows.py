"""Rows of the coupler's files: keys, prefixes, workers, lines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows
from tests.support.coupler_files import T0, W1, W2, life, scheduler, transfer, worker, write
from tests.support.coupler_runs import Y, executed, findings, imported_run, invoke, run_of

pytestmark = pytest.mark.long


def test_each_row_has_its_file_and_line(folder: Path) -> None:
    """Every row of every table has the file and the line that it was read from."""
    run = imported_run(folder, align=False)
    tables = {
        "scheduler_transition": ["scheduler_transitions"],
        "worker_transition": ["worker_transitions"],
        "worker_transfer": ["transfer_ends", "transfer_resends"],
        "worker": ["worker_events"],
        "client": ["clients"],
        "graph": ["submissions"],
    }
    for role, names in tables.items():
        lines = (folder / f"{role}.csv").read_text().splitlines()
        at = lines[0].split(",").index("time")
        found = {}
        for name in names:
            for row in rows(run, f"select file, line, salvaged, time from {name}"):
                assert row["file"] == f"{role}.csv"
                assert not row["salvaged"]
                found[row["line"]] = row["time"].timestamp()
        reader = csv.reader(lines[1:])
        assert found == {number: float(cells[at]) for number, cells in enumerate(reader, 2)}


def test_lines_count_ends_of_line_in_cells(tmp_path: Path) -> None:
    """A line end within a key counts as a line for the rows after it."""
    run = run_of(
        tmp_path, worker_transition=[worker("a\nb", "ready", "executing", T0)] * 2, worker=[]
    )
    assert rows(run, "select key, line from worker_transitions order by line") == [
        {"key": "a\nb", "line": 2},
        {"key": "a\nb", "line": 4},
    ]


TRICKY = [
    ("save_file-331f", 0, 0, 0, 0),
    "('x', 1)",
    "NA",
    "null",
    "nan",
    "1",
    "1.0",
    "None",
    "a,b",
    'say "hi"',
    "it's",
    "back\\slash",
    "two\nlines",
    "é☃😀",
    " spaced ",
    "#",
    ("it's", "q\"'", -1),
    ("nested", ("a", 1), 2.5),
]


@pytest.mark.parametrize("key", TRICKY, ids=ascii)
def test_a_task_has_one_key_in_all_files(key: Any, tmp_path: Path) -> None:
    """The scheduler, a worker, a transfer and the graph refer to one task by one text."""
    run = run_of(
        tmp_path,
        scheduler_transition=life(key, T0 + 10, T0 + 11, W2),
        worker_transition=executed(key, T0 + 10, T0 + 11, W2),
        worker_transfer=[transfer({key: 8}, T0 + 12, T0 + 13)],
        graph=[{"keys": str({key}), "dependencies": str({key: set()}), "time": T0}],
    )
    (task,) = rows(run, "select key, n_attempts from tasks")
    assert task == {"key": str(key), "n_attempts": 1}
    for table in (
        *("scheduler_transitions", "worker_transitions", "transfer_end_keys", "transfer_keys"),
        *("graph_tasks", "tasks", "attempts"),
    ):
        found = rows(run, f"select distinct key, key_type from {table}")
        assert found == [{"key": str(key), "key_type": found[0]["key_type"]}], table
    assert run.task(str(key)).state == "memory"
    if isinstance(key, tuple):
        assert run.task(key).facts == run.task(str(key)).facts


def test_prefixes_are_dasks_own(tmp_path: Path) -> None:
    """A prefix is the scheduler's; without a row of the scheduler, Dask's function derives it."""
    run = run_of(
        tmp_path,
        scheduler_transition=[scheduler("inc-1", "released", "waiting", T0, prefix="mine")],
        worker_transition=executed(("sum-1234abcd", 0), T0, T0 + 1, W1),
    )
    assert rows(run, "select key, prefix from tasks order by key") == [
        {"key": "('sum-1234abcd', 0)", "prefix": "sum"},
        {"key": "inc-1", "prefix": "mine"},
    ]


def test_rows_are_put_in_order_of_time(tmp_path: Path) -> None:
    """Unsorted rows of several workers yield the same tasks, without chain breaks."""
    ordered = life("a", T0 + 1, T0 + 2, W1)
    run = run_of(
        tmp_path,
        scheduler_transition=ordered[::-1],
        worker_transition=executed("a", T0 + 1, T0 + 2, W1)[::-1],
    )
    assert rows(run, "select state, n_attempts, compute_seconds from tasks") == [
        {"state": "memory", "n_attempts": 1, "compute_seconds": 1.0}
    ]
    assert not [line for line in findings(run) if "chain break" in line]


def test_worker_names_may_be_anything(tmp_path: Path) -> None:
    """A worker may be named by an integer or any text in called_from; it has its tasks."""
    names = [
        "0",
        "7",
        "my worker",
        "SLURMCluster-1",
        'é, "q"',
        "tcp://[::1]:80",
        "tcp://[",
        "ucx://h",
    ]
    run = run_of(
        tmp_path,
        worker_transition=[
            row
            for i, name in enumerate(names)
            for row in executed(f"k-{i}", T0 + i, T0 + i + 1, name)
        ],
    )
    found = rows(run, "select worker, compute_seconds from attempts order by start")
    assert [row["worker"] for row in found] == names
    for command in ("show", "map", "check"):
        assert invoke(command, run.path).exit_code in {0, 1}


def test_keys_with_numpy_numbers_are_kept_as_text(tmp_path: Path) -> None:
    """A key with a NumPy number is the same task in transfers and in the other files."""
    shown = "('t', np.int64(0))"
    made = {
        "scheduler_transition": life(shown, T0 + 1, T0 + 2, W1),
        "worker_transfer": [transfer({}, T0 + 3, T0 + 4, keys=f"{{{shown}: 8}}", total=8)],
        "graph": [
            {
                "client": "c",
                "keys": f"{{{shown}}}",
                "dependencies": f"{{{shown}: set()}}",
                "time": T0,
            }
        ],
    }
    run = imported_run(write(tmp_path / "csv", made))
    assert rows(run, "select key, n_attempts from tasks") == [{"key": shown, "n_attempts": 1}]
    assert rows(run, "select key from transfer_keys") == [{"key": shown}]


def test_undeclared_workers_are_workers(tmp_path: Path) -> None:
    """A worker that executed a task is in `workers`, also without worker.csv."""
    run = imported_run(
        write(tmp_path / "csv", {"scheduler_transition": life(Y, T0 + 1, T0 + 1.25, W1)})
    )
    found = rows(run, "select worker, host, n_attempts, compute_seconds from workers")
    assert found == [{"worker": W1, "host": "10.0.0.2", "n_attempts": 1, "compute_seconds": 0.25}]
    assert run.check().findings
