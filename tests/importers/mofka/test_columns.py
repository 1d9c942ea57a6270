"""Columns of the coupler's files, and the files' names."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from dask_strata import open_run
from dask_strata.errors import ImportedDataError
from dask_strata.importers.mofka.importer import find_files
from tests.conftest import rows
from tests.support.coupler_files import COLUMNS, T0, W1, W2, put, text, write
from tests.support.coupler_runs import (
    ROLES,
    example_files,
    finding,
    findings,
    import_folder,
    imported_run,
    invoke,
    one,
)

pytestmark = pytest.mark.long


def test_any_order_of_columns_and_either_coupler(tmp_path: Path) -> None:
    """The order of columns and the coupler's version do not change the tables."""
    usual = imported_run(write(tmp_path / "usual", example_files()), align=False)
    new = imported_run(write(tmp_path / "new", example_files(), new=True), align=False)
    for role, rows_ in example_files().items():
        put(tmp_path / "turned" / f"{role}.csv", text(role, rows_, COLUMNS[role][::-1]))
    turned = imported_run(tmp_path / "turned", align=False)
    assert (tmp_path / "new" / "graph.csv").read_text().startswith(",action,client")
    assert (tmp_path / "turned" / "graph.csv").read_text().startswith(",time,dep")
    for table in ("tasks", "attempts", "transfers", "workers", "submissions", "graph_edges"):
        found = {run: run[table].to_arrow().to_pylist() for run in (usual, new, turned)}
        assert found[new] == found[usual], table
        assert found[turned] == found[usual], table
        assert found[usual], table
    assert new.check().ok
    assert turned.check().ok


def test_newer_couplers_add_workers_without_an_address(tmp_path: Path) -> None:
    """`add_worker` without an address is kept as an event, but adds no worker."""
    write(tmp_path / "csv", example_files(), new=True)
    newer = [{"action": "add_worker", "stimulus_id": f"s-{i}", "time": T0 + i} for i in range(2)]
    put(tmp_path / "csv" / "worker.csv", text("worker", newer, new=True))
    run = imported_run(tmp_path / "csv")
    assert rows(run, "select worker, action, stimulus_id from worker_events") == [
        {"worker": None, "action": "add", "stimulus_id": "s-0"},
        {"worker": None, "action": "add", "stimulus_id": "s-1"},
    ]
    assert [row["worker"] for row in rows(run, "select worker from workers order by 1")] == [W1, W2]
    assert run.check().ok
    assert "2 workers without an address" in finding(run, "note", "address")


def test_workers_csv_is_worker_csv(folder: Path) -> None:
    """Both names are accepted; both at once are not."""
    (folder / "worker.csv").rename(folder / "workers.csv")
    run = imported_run(folder)
    assert one(run, "select count(*) from worker_events where file = 'workers.csv'") == 2
    assert run.check().ok
    put(folder / "worker.csv", text("worker", []))
    with pytest.raises(ImportedDataError, match=r"both worker\.csv and workers\.csv"):
        find_files(folder)


@pytest.mark.parametrize("role", ROLES)
def test_a_file_with_only_a_header(role: str, folder: Path) -> None:
    """A file with only a header has no rows, which is no loss."""
    put(folder / f"{role}.csv", text(role, []))
    run = imported_run(folder)
    assert "0 of 0 rows" in finding(run, f"ok {role}.csv")
    assert invoke("show", run.path).exit_code == 0


NO_FILES = [b"", b"\n", b"\xef\xbb\xbf", b"\0\0", b"a\rb\rc", b"\x89PNG\r\n"]


@pytest.mark.parametrize(
    ("role", "data"),
    [
        *itertools.product(["worker_transfer", "graph"], NO_FILES),
        *itertools.product(ROLES[:2] + ROLES[3:5], [b"", b"\x89PNG\r\n"]),
    ],
    ids=repr,
)
def test_a_file_without_a_header(role: str, data: bytes, folder: Path) -> None:
    """An empty file, or one of other data, is reported missing; the others are imported."""
    put(folder / f"{role}.csv", data)
    run = imported_run(folder)
    lines = findings(run)
    assert [line for line in lines if line.startswith("missing") and f"{role}.csv:" in line]
    assert [line.split(":")[0] for line in lines if line.startswith("ok ")] == [
        f"ok {name}.csv" for name in sorted(ROLES)
    ]


@pytest.mark.release
@pytest.mark.parametrize(
    ("role", "column"),
    [(role, column) for role in ROLES for column in COLUMNS[role]],
)
def test_a_missing_column(role: str, column: str, folder: Path) -> None:
    """Without a required column the rows are set aside with the reason; others are optional."""
    columns = [c for c in COLUMNS[role] if c != column]
    put(folder / f"{role}.csv", text(role, example_files()[role], columns))
    done = import_folder(folder)
    run = open_run(done.path)
    needed = {
        "scheduler_transition": {"key", "start", "finish", "time"},
        "worker_transition": {"key", "start", "finish", "time"},
        "worker_transfer": {"start", "stop", "keys", "type", "time"},
        "graph": {"dependencies", "time"},
    }.get(role, {"time"})
    if column in needed:
        assert done.set_aside == len(example_files()[role])
        reasons = rows(run, "select what, reason from losses")
        assert {"what": f"{role}.csv", "reason": f"has no column {column}"} in reasons
        assert rows(run, "select distinct file, reason from set_aside") == [
            {"file": f"{role}.csv", "reason": f"the file has no column {column}"}
        ]
    else:
        assert done.set_aside == 0
    assert len(run.tasks) == len(run.tasks.to_pandas()) <= 2


def test_unknown_columns_are_named(folder: Path) -> None:
    """An unknown column is left out, and reported with the number of its rows."""
    given_rows = [row | {"mood": "good"} for row in example_files()["client"]]
    put(folder / "client.csv", text("client", given_rows, [*COLUMNS["client"], "mood"]))
    run = imported_run(folder)
    assert "1 column mood of client.csv: left out: its meaning is unknown" in finding(run, "mood")
    assert one(run, "select columns from imports where file = 'client.csv'") == json.dumps(
        ["", *COLUMNS["client"], "mood"]
    )
