"""The record of task graphs: tasks, dependencies, annotations, sizes and layers."""

from __future__ import annotations

import json

import pytest

from tests.conftest import rows
from tests.recorder.roles.workload import DIAMOND, RecordedWork, inc, line_of


def test_graph_equals_the_users(recorded: RecordedWork) -> None:
    """Keys, prefixes, groups, functions and dependencies equal those of the user's graph."""
    run = recorded.run
    found = rows(run, "select * from graph_tasks where key like 'diamond-%' order by key")
    assert [t["key"] for t in found] == sorted(DIAMOND)
    assert {t["key_type"] for t in found} == {"str"}
    module = inc.__module__
    assert [t["function"] for t in found] == [f"{module}.inc", f"{module}.inc", f"{module}.add"]
    assert [t["requested"] for t in found] == [False, False, True]
    edges = rows(run, "select key, dependency from graph_edges where key like 'diamond-%'")
    assert {(e["key"], e["dependency"]) for e in edges} == {
        ("diamond-b", "diamond-a"),
        ("diamond-c", "diamond-a"),
        ("diamond-c", "diamond-b"),
    }
    assert sorted(run.task("diamond-c").dependencies) == ["diamond-a", "diamond-b"]
    assert sorted(run.task("diamond-a").dependents) == ["diamond-b", "diamond-c"]
    found = rows(run, "select * from graph_tasks where key_type = 'tuple' and requested")
    chunks = [t for t in found if t["prefix"] == "mul"]
    assert len(chunks) == 3
    [group] = {t["group"] for t in chunks}
    assert sorted(t["key"] for t in chunks) == [f"('{group}', {i})" for i in range(3)]


def test_annotations_and_priority(recorded: RecordedWork) -> None:
    """Annotations are recorded as given, and so is the priority that Dask computes from them."""
    run = recorded.run
    [task] = rows(run, "select * from graph_tasks where key = 'cell-annotated'")
    annotations = json.loads(task["annotations"])
    assert annotations["custom"] == {"who": "me", "n": 3}
    assert annotations["priority"] == 7
    assert json.loads(task["priority"].replace("(", "[").replace(")", "]"))[0] == -7


def test_definition_size(recorded: RecordedWork) -> None:
    """The size of a task definition grows with the data in it."""
    found = {
        row["key"]: row["definition_bytes"]
        for row in rows(recorded.run, "select key, definition_bytes from graph_tasks")
    }
    assert 0 < found["cell-small"] < 5_000
    assert 400_000 <= found["cell-large"] < 410_000


def test_layers_of_an_array(recorded: RecordedWork) -> None:
    """The layers of an array's graph are recorded as written, before its optimisation."""
    number, _ = line_of("array")
    found = rows(
        recorded.run,
        f"""
        select l.* from graph_layers l join client_submissions c
          on c.first_key = l.first_key and c.first_key_type = l.first_key_type and c.time = l.time
        where c.line = {number}
        """,
    )
    expected = recorded.facts["array layers"]
    by_name = {row["layer"]: row for row in found}
    assert set(expected) == {name for name, row in by_name.items() if row["stage"] == "written"}
    for name in expected:
        row = by_name[name]
        assert set(json.loads(row["dependencies"])) == set(expected[row["layer"]])
        assert row["type"] in {"Blockwise", "MaterializedLayer"}
    tasks = rows(
        recorded.run, 'select distinct layer, "group" from graph_tasks where layer is not null'
    )
    assert tasks
    assert all(t["layer"] == t["group"] for t in tasks)


def test_layers_of_a_dataframe(recorded: RecordedWork) -> None:
    """The expression of a data frame is recorded operation by operation."""
    if recorded.facts["frame"] is None:
        pytest.skip("pandas is not installed here")
    assert recorded.facts["frame"] == 45
    number, _ = line_of("frame")
    found = rows(
        recorded.run,
        f"""
        select l.* from graph_layers l join client_submissions c
          on c.first_key = l.first_key and c.first_key_type = l.first_key_type and c.time = l.time
        where c.line = {number}
        """,
    )
    types = {
        stage: {r["type"] for r in found if r["stage"] == stage} for stage in ("written", "sent")
    }
    assert types["written"] == {"FromPandas", "Projection", "Sum"}
    assert "TreeReduce" in types["sent"]
    names = {row["layer"] for row in found}
    assert all(set(json.loads(row["dependencies"])) <= names for row in found)
