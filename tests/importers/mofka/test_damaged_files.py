"""Damaged files: invalid rows are set aside with their line and the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dask_strata import open_run
from tests.conftest import rows, runs_in
from tests.support.coupler_files import T0, W1, damaged, life, scheduler, write
from tests.support.coupler_runs import (
    consumer,
    example_files,
    finding,
    import_folder,
    imported_run,
    invoke,
    one,
    received,
)

pytestmark = pytest.mark.long


def test_rows_that_cannot_be_understood_are_kept_aside(folder: Path, tmp_path: Path) -> None:
    """Invalid rows: exit status 1, one line on the screen, their bytes, `set_aside`, check."""
    bad = [
        b"9,only,three\n",
        b"10,k,ready,memory,w,soon\n",
        b"11,k\xff,a,b,w,1\n",
        b"12,\0,a,b,w,1\n",
    ]
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes() + b"".join(bad))
    done = invoke("import", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    (run,) = runs_in(tmp_path / "runs")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"4 rows could not be understood and were set aside in {run.path}/aside")
    assert (run.path / "aside" / "worker_transition.csv").read_bytes() == b"".join(bad)
    assert rows(run, "select file, line, lines, reason from set_aside order by line") == [
        {"file": path.name, "line": 6, "lines": 1, "reason": "has 3 cells, but the header has 6"},
        {"file": path.name, "line": 7, "lines": 1, "reason": "time is not a valid time"},
        {"file": path.name, "line": 8, "lines": 1, "reason": "not UTF-8"},
        {"file": path.name, "line": 9, "lines": 1, "reason": "contains NUL bytes"},
    ]
    assert "first line 7" in finding(run, "missing", "time is not a valid time")
    assert "4 of 8 rows are in the tables" in finding(run, "ok worker_transition.csv")
    assert not run.check().ok
    assert one(run, "select count(*) from worker_transitions") == 4
    assert invoke("query", run.path, "from set_aside").exit_code == 0


def test_strict_refuses_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """With --strict, an invalid row ends the import with file, line and reason, without a run."""
    path = folder / "worker_transition.csv"
    path.write_bytes(path.read_bytes() + b"9,only,three\n")
    done = invoke("import", "--strict", folder, "-o", tmp_path / "runs")
    assert done.exit_code == 1
    assert f"{path}, line 6: has 3 cells" in done.stderr
    assert "Traceback" not in done.output
    assert not (tmp_path / "runs").exists()


def cut_at(where: str) -> Callable[[bytes], bytes]:
    """Return a function that cuts data after the last occurrence of a text."""
    return lambda data: data[: data.rindex(where.encode()) + len(where)]


@pytest.mark.parametrize(
    ("role", "cut", "reason"),
    [
        ("worker_transition", cut_at("executing,mem"), "the file ends in the middle of this row"),
        ("worker_transition", cut_at(",1713"), "the file ends in the middle of this row"),
        ("worker_transition", cut_at(",1713553310.6"), None),
        ("worker_transfer", cut_at("\"{('x'"), "the file ends in the middle of this row"),
        ("graph", cut_at("('x', 0"), "the file ends in the middle of this row"),
        (
            "scheduler_transition",
            cut_at("tcp://10.0.0.1:8786,"),
            "the file ends in the middle of this row",
        ),
    ],
    ids=["row", "number", "digits", "transfer", "quoted cell", "cells"],
)
def test_a_file_that_ends_in_the_middle(
    role: str, cut: Callable[[bytes], bytes], reason: str | None, folder: Path
) -> None:
    """A cut row, quoted cell or number is set aside; lost digits only mark the row."""
    path = folder / f"{role}.csv"
    whole = path.read_bytes()
    path.write_bytes(cut(whole))
    assert len(path.read_bytes()) < len(whole)
    done = import_folder(folder)
    run = open_run(done.path)
    n = one(run, f"select rows from imports where file = '{path.name}'")
    assert n == len(example_files()[role])
    if reason is None:
        assert (done.set_aside, done.salvaged) == (0, 1)
        query = "select max(line) as line from worker_transitions where salvaged"
        assert one(run, query) == 5
        assert "1 row salvaged" in finding(run, "note", path.name)
    else:
        assert (done.set_aside, done.salvaged) == (1, 0)
        assert reason in finding(run, "missing", path.name)
        kept = (run.path / "aside" / path.name).read_bytes()
        assert kept == path.read_bytes().rpartition(b"\n")[2] + b"\n"


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "soon", "", "-5", "1e300", "NaT", "1_700_000_000"]
)
@pytest.mark.parametrize("column", ["time", "begins"])
def test_invalid_times(column: str, value: str, tmp_path: Path) -> None:
    """NaN, infinity and text are set aside; an empty cell is null in an optional column."""
    kept, bad = life("kept", T0, T0 + 1, W1), life("bad", T0, T0 + 1, W1)[-1]
    folder = write(tmp_path / "csv", {"scheduler_transition": [bad | {column: value}, *kept]})
    done = import_folder(folder)
    run = open_run(done.path)
    fine = column == "begins" and not value
    assert done.set_aside == (0 if fine else 1)
    assert run.task("kept").state == "memory"
    if not fine:
        reason = "is empty" if not value else "is not a valid time"
        assert rows(run, "select line, reason from set_aside") == [
            {"line": 2, "reason": f"{column} {reason}"}
        ]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "[('x', 0)]",
        "['x']",
        "{}",
        "{'x'}",
        "{'x': 'y'}",
        "{'x': -1}",
        "{'x': 1.5}",
        "nan",
        "garbage",
        "{'x': 1",
        "{'x': " + "9" * 5000 + "}",
        "{'\\ud800': 1}",
        "{" * 1000,
        "{x: 1 for x in 'ab'}",
    ],
    ids=lambda cell: cell[:12],
)
def test_invalid_cells_of_keys(cell: str, tmp_path: Path) -> None:
    """A cell of keys that is a list, blank or garbage sets its row aside, and no other."""
    folder = write(
        tmp_path / "csv",
        {
            "worker_transfer": [received(keys=cell), received()],
            "graph": [
                {"keys": "set()", "dependencies": cell if cell != "{}" else "{'a'}", "time": T0},
                {"keys": "set()", "dependencies": "{'a': set()}", "time": T0},
            ],
        },
    )
    done = import_folder(folder)
    run = open_run(done.path)
    assert done.set_aside == 2
    assert rows(run, "select file, line from set_aside order by file") == [
        {"file": "graph.csv", "line": 2},
        {"file": "worker_transfer.csv", "line": 2},
    ]
    assert one(run, "select count(*) from transfers") == 1
    assert rows(run, "select key from graph_tasks") == [{"key": "a"}]


def test_a_cell_that_is_code_is_not_run(tmp_path: Path) -> None:
    """An expression in a cell of keys is set aside, and not evaluated."""
    evil = f"{{open({str(tmp_path / 'made')!r}, 'w'): 1}}"
    evil_set = f"{{open({str(tmp_path / 'made')!r}, 'w')}}"
    folder = write(
        tmp_path / "csv",
        {
            "scheduler_transition": [scheduler(evil, "released", "waiting", T0)],
            "worker_transfer": [received(keys=evil)],
            "graph": [
                {"keys": evil_set, "dependencies": "{'a': set()}", "time": T0},
                {"keys": "{'a'}", "dependencies": f"{{'a': {evil_set}}}", "time": T0},
            ],
        },
    )
    consumer(folder, damaged(received(keys=evil)))
    done = import_folder(folder)
    assert (done.set_aside, done.lost) == (3, 1)
    run = open_run(done.path)
    assert invoke("story", run.path, evil).exit_code == 0
    assert invoke("show", run.path).exit_code == 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\n\n"),
        lambda data: data + b"\n\n",
    ],
    ids=["BOM", "CRLF", "empty lines", "empty lines at the end"],
)
def test_other_ways_to_write_a_file_change_nothing(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A byte order mark, CRLF and empty lines do not change the rows."""
    usual = imported_run(write(tmp_path / "usual", example_files()))
    other = write(tmp_path / "other", example_files())
    for path in other.iterdir():
        path.write_bytes(change(path.read_bytes()))
    run = imported_run(other)
    assert run.check().ok
    for table in ("tasks", "attempts", "transfers", "graph_edges", "clients"):
        columns = usual[table].to_arrow().column_names
        columns = [c for c in columns if c not in {"line", "seq", "submission"}]
        left, right = (r[table].to_arrow().select(columns).to_pylist() for r in (usual, run))
        assert left == right
        assert left


def test_two_stray_quotes_cost_two_rows(tmp_path: Path) -> None:
    """Two stray quotes cost their own rows, and not the rows between them."""
    lines = [f"{i},k-{i},released,waiting,{W1},{T0 + i}" for i in range(30)]
    lines[2], lines[15] = f'"{lines[2]}', f'"{lines[15]}'
    folder = tmp_path / "csv"
    folder.mkdir()
    header = ",key,start,finish,called_from,time"
    (folder / "worker_transition.csv").write_text("\n".join([header, *lines, ""]), "utf-8")
    done = import_folder(folder)
    assert (done.rows, done.set_aside) == (30, 2)
    found = rows(open_run(done.path), "select line from set_aside order by line")
    assert found == [{"line": 4}, {"line": 17}]
