"""Events of the Mofka-Dask coupler in a stream make the run that its CSV files make.

Mofka itself does not run here. Its events are JSON objects, whichever broker holds them: here they
are made from CSV files that the coupler's consumer wrote, and read from a file.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.importers.mofka.columns import FIELDS, NAMES
from dask_strata.importers.mofka.importer import find_files, import_files
from dask_strata.importers.streams.coupler import role_of
from dask_strata.importers.streams.importer import import_stream
from tests.support.coupler_files import write
from tests.support.coupler_runs import example_files
from tests.support.shared_fixtures import shared_fixture
from tests.support.streamed import recorded_rows

#: Tables that name the files or the time of the import.
OWN = {"imports", "losses", "processes"}


def events_of(folder: Path) -> dict[str, list[str]]:
    """Return the events of the coupler's files by role, as JSON with numbers as numbers."""
    found: dict[str, list[str]] = {}
    csv.field_size_limit(1 << 30)
    for role in FIELDS:
        path = next((folder / n for n in NAMES[role] if (folder / n).exists()), None)
        if path is None:
            continue
        kinds = {f.name: f.kind for f in FIELDS[role]}
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                cells = {name: cell for name, cell in row.items() if name}
                found.setdefault(role, []).append(_json(cells, kinds))
    return found


def _json(cells: dict[str, str], kinds: dict[str, Any]) -> str:
    numbers = ("time", "int", "number")
    items = []
    for name, cell in cells.items():
        is_number = kinds.get(name) in numbers and cell and ":" not in cell
        value = cell if is_number else json.dumps(cell or None)
        items.append(f"{json.dumps(name)}: {value}")
    return "{" + ", ".join(items) + "}"


def shuffled(events: dict[str, list[str]]) -> list[str]:
    """Return all events: of each role in order, the roles mixed."""
    chaos = random.Random(1)
    order = [role for role, lines in events.items() for _ in lines]
    chaos.shuffle(order)
    left = {role: iter(lines) for role, lines in events.items()}
    return [next(left[role]) for role in order]


def assert_same_run(folder: Path, tmp_path: Path) -> None:
    """Assert that the events of a folder make the run that the folder makes."""
    files = {role: path for role, path in find_files(folder).items() if role != "consumer"}
    of_files = import_files(files, tmp_path / "of-files", name="x")
    lines = shuffled(events_of(folder))
    (tmp_path / "events").write_text("\n".join(lines) + "\n")
    done = import_stream(f"file:{tmp_path}/events", tmp_path / "runs", name="x")
    assert done.runs == ()
    assert done.set_aside == 0
    assert done.coupler is not None
    assert done.coupler.rows == of_files.rows == len(lines)
    assert done.coupler.resent == of_files.resent
    assert done.coupler.set_aside == of_files.set_aside
    found, expected = (open_run(made.path) for made in (done.coupler, of_files))
    tables, wanted = recorded_rows(found), recorded_rows(expected)
    for name, rows in wanted.items():
        assert name in OWN or tables[name] == rows, name
    assert found.manifest.imported_from == f"file:{tmp_path}/events"
    assert found.manifest.created_ns == expected.manifest.created_ns
    query = "select process, role, host from processes order by all"
    assert found.rows(query) == expected.rows(query)
    kept = "select file, rows, kept, resent, set_aside from imports order by file"
    assert found.rows(kept) == expected.rows(kept)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {found.path.name}


def test_events_make_the_run_of_the_files(tmp_path: Path) -> None:
    """A small workflow with a resent transfer and a clock that differs."""
    folder = write(tmp_path / "files", example_files())
    assert_same_run(folder, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "PMDA/D2024-04-19_19:01:00_R1_W8",
        pytest.param("ImageProcessing/D2024-04-18_15:54:03_R7_W8", marks=pytest.mark.long),
    ],
)
def test_events_of_real_workflows(name: str, tmp_path: Path) -> None:
    """Files that the coupler's consumer wrote on a supercomputer."""
    folder = Path(shutil.copytree(shared_fixture(name), tmp_path / "files"))
    assert_same_run(folder, tmp_path)


def test_collections_may_be_json(tmp_path: Path) -> None:
    """Keys and dependencies may be lists and objects of JSON, not only their Python text."""
    graph = {"client": "c", "keys": ["b"], "dependencies": {"a": [], "b": ["a"]}, "time": 1.5e9}
    moved = {"start": 1.5e9, "stop": 1.5e9 + 1, "keys": {"('x', 0)": 8}, "time": 1.5e9 + 2}
    moved |= {"type": "incoming_transfer", "called_from": "tcp://a:1", "who": "tcp://b:1"}
    moved |= {"middle": "NaN", "total": 8}
    (tmp_path / "events").write_text(f"{json.dumps(graph)}\n{json.dumps(moved)}\n")
    done = import_stream(f"file:{tmp_path}/events", tmp_path / "runs")
    assert done.coupler is not None
    run = open_run(done.coupler.path)
    assert run.rows("select key, dependency from graph_edges") == [{"key": "b", "dependency": "a"}]
    assert run.rows("select key, key_type, nbytes from transfer_end_keys") == [
        {"key": "('x', 0)", "key_type": "tuple", "nbytes": 8}
    ]
    assert done.coupler.set_aside == 0


def test_an_event_that_cannot_be_understood_is_set_aside(tmp_path: Path) -> None:
    """Its row is kept and counted, and the others are in the run."""
    good = '{"key": "a", "start": "waiting", "finish": "ready", "time": 1500000000.25}'
    lines = [good, good.replace("1500000000.25", '"soon"'), good.replace('"a"', '"\\ud800"')]
    (tmp_path / "events").write_text("\n".join(lines) + "\n")
    done = import_stream(f"file:{tmp_path}/events", tmp_path / "runs")
    assert not done.is_complete
    assert done.coupler is not None
    assert done.coupler.set_aside == 2
    run = open_run(done.coupler.path)
    assert [r["key"] for r in run.rows("select key from worker_transitions")] == ["a"]


@pytest.mark.parametrize(
    "event", [None, 7, [], {}, {"strata": 1, "key": "x", "start": "a", "finish": "b"}, {"x": 1}]
)
def test_other_values_are_no_events(event: object) -> None:
    """Messages of dask-strata, and values of other programs."""
    assert role_of(event) is None
