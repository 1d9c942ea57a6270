"""The walk through definitions is bounded, never raises, and calls no method of user objects."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import Any

import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task
from hypothesis import given
from hypothesis import strategies as st

from dask_strata.recorder.inputs.extractors.coffea import EXTRACTORS
from dask_strata.recorder.inputs.extractors.paths import absolute, looks_like_path, text_path
from dask_strata.recorder.inputs.graph_walker import MAX_PARTS, GraphWalker
from dask_strata.recorder.inputs.source import Definitions, InputSource
from dask_strata.recorder.pipeline.redact import redact_path, redact_text

#: Not empty while hostile objects raise: outside a walk, Dask and Hypothesis call their methods.
_ARMED: list[bool] = []


def walk(walker: GraphWalker, task: Any) -> list[dict[str, Any]]:
    """Return the rows of a walk during which hostile objects raise."""
    _ARMED.append(True)
    try:
        return walker.claims(task)
    finally:
        _ARMED.clear()


def defend() -> None:
    """Raise during a walk."""
    if _ARMED:
        raise RuntimeError


def function(*_: Any, **__: Any) -> None:
    """Accept any arguments."""


def found(*args: Any, own: dict[Any, Any] | None = None, **kwargs: Any) -> list[str]:
    """Return the uris that a task with these arguments claims."""
    return uris(Task("key", function, *args, **kwargs), own or {})


def uris(task: Any, own: dict[Any, Any] | None = None) -> list[str]:
    """Return the uris that a task claims; assert that nothing failed."""
    walker = GraphWalker({"key": task, **(own or {})}, {})
    rows = walk(walker, task)
    assert not walker.failures
    return [row["uri"] for row in rows]


class Hostile:
    """Raises on each access during a walk."""

    def __getattribute__(self, name: str) -> Any:
        defend()
        return object.__getattribute__(self, name)

    def __len__(self) -> int:
        defend()
        return 1

    def __hash__(self) -> int:
        defend()
        return 1

    def __eq__(self, other: object) -> bool:
        defend()
        return self is other


class HostileText(str):
    """Text that raises when it is compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        defend()
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        defend()
        return str.__hash__(self)

    def __str__(self) -> str:
        defend()
        return "text"


class HostileList(list):  # type: ignore[type-arg]
    """A list that raises on iteration."""

    def __iter__(self) -> Any:
        defend()
        return list.__iter__(self)

    def __len__(self) -> int:
        defend()
        return list.__len__(self)


class HostilePath:
    """A path that raises SystemExit when it is converted to text."""

    def __fspath__(self) -> str:
        raise SystemExit


_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
)
_ODD = st.sampled_from(
    [Hostile(), HostileText("/a"), HostileList(["/b"]), HostilePath(), function, Hostile, object()]
)
_ANY = st.recursive(
    _PLAIN | _ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        inner.map(lambda value: DataNode(None, value)),
        inner.map(lambda value: functools.partial(function, value, x=value)),
        inner.map(lambda value: Task(None, function, value, y=value)),
        st.lists(inner, max_size=3).map(lambda values: List(*values)),
        st.sampled_from(["a", "key", ("x", 0)]).map(Alias),
    ),
    max_leaves=20,
)


@given(st.lists(_ANY, max_size=4), st.dictionaries(st.sampled_from("ab"), _ANY))
def test_anything_can_be_walked(args: list[Any], data: dict[str, Any]) -> None:
    """A walk through any definition raises nothing and returns rows of plain values."""
    own = {name: DataNode(name, value) for name, value in data.items()}
    own["key"] = Task("key", function, *args)  # type: ignore[assignment]
    rows = walk(GraphWalker(own, {}), own["key"])
    json.dumps(rows)
    assert all(isinstance(row["uri"], str) for row in rows)


@given(st.text(max_size=60) | st.from_regex(r"(/|\w+://|\w+\.)[\w:=@ &?/.-]{0,40}", fullmatch=True))
def test_any_text_is_a_path_or_not(text: str) -> None:
    """Each text is classified without an error, and fast redaction equals full redaction."""
    if looks_like_path(text):
        assert text_path(text) == text
        assert absolute(absolute(text)) == absolute(text)
    assert redact_path(text) == redact_text(text)


def test_paths_are_found_everywhere_in_a_definition() -> None:
    """Each path is found once: in containers, partials, nested tasks, data, and by reference."""
    path = "/data/x.csv"
    own = {"d": DataNode("d", {"files": [path]}), "a": Alias("a", "d")}
    assert found(path, [path], {"k": (path,)}) == [path]
    assert found(functools.partial(function, path)) == [path]
    assert found(Task(None, function, x=path)) == [path]
    assert found(Alias("d"), own=own) == found(Alias("a"), own=own) == [path]
    assert found(List(Task(None, function, DataNode(None, path)))) == [path]
    assert found(Dict({"x": Task(None, function, path)})) == [path]
    assert found(pathlib.PurePosixPath(path), HostileText(path), HostileList([path])) == [path]
    assert uris(Task("key", functools.partial(function, path))) == [path]
    assert uris(DataNode("key", path)) == []
    assert found(pathlib.PurePosixPath("x")) == [os.path.abspath("x")]


def test_references_of_a_subgraph() -> None:
    """References within a fused task resolve to data inside and outside of it."""
    from dask._task_spec import _execute_subgraph

    inner = {
        "in": DataNode("in", "/in.txt"),
        "one": Task("one", function, Alias("in"), Alias("given"), Alias("later")),
        "two": Task("two", function, Alias("one")),
    }
    task = Task(
        "key", _execute_subgraph, inner, "two", ("given", "later"), DataNode(None, "/given.txt"),
        Alias("outside"),
    )  # fmt: skip
    outside = {"outside": DataNode("outside", ["/outside.txt"])}
    assert sorted(uris(task, outside)) == ["/given.txt", "/in.txt", "/outside.txt"]


def test_circular_references() -> None:
    """A circular reference resolves to nothing, and the walk ends."""
    own = {"a": Alias("a", "b"), "b": Alias("b", "a"), "c": Alias("c", "c")}
    assert found(Alias("a"), Alias("c"), own=own) == []


def test_the_walk_is_bounded() -> None:
    """Depth and number of parts are bounded; a definition with too many parts is counted."""
    deep: Any = "/deep.txt"
    for _ in range(500):
        deep = [deep]
    assert found(deep) == []
    assert found([[*range(10**6)], "/x.txt"]) == ["/x.txt"]
    many = Task("key", function, [f"/data/{i}" for i in range(2 * MAX_PARTS)])
    walker = GraphWalker({}, {})
    rows = walker.claims(many)
    assert len(rows) < MAX_PARTS
    assert sum(walker.failures.values()) == 1


def write_table(*_: Any) -> None:
    """Accept any arguments."""


def test_output_paths_are_no_inputs() -> None:
    """Paths of a writing function are left out, paths of tasks among its arguments are not."""
    task = Task("key", write_table, "/out.csv", Task(None, function, "/in.csv"))
    assert uris(task) == ["/in.csv"]


def test_a_large_graph_is_searched_in_parts() -> None:
    """Each call searches a part of the tasks; after the last call all rows are there."""
    source = InputSource()
    n = 30_000
    definitions = Definitions("s", {})
    definitions.add({f"k{i}": Task(f"k{i}", function, f"/data/{i}.csv") for i in range(n)})
    source.add(definitions)
    first = sum(batch.n for batch in source.slow_rows())
    assert 0 < first < n
    source.end()
    batches = list(source.slow_rows())
    assert first + sum(batch.n for batch in batches) == n
    assert {batch.table for batch in batches} == {"claimed_inputs"}
    assert list(source.slow_rows()) == []


class Factory:
    """Has the attributes of a `NanoEventsFactory`."""

    def __init__(self, key: Any) -> None:
        files = {"u-1": "/data/n.root"}
        opener = type("Opener", (), {})()
        opener._uuid_pfnmap = files
        self._mapping = type("Mapping", (), {})()
        self._mapping._fileopener = opener
        self._partition_key = key


@pytest.mark.parametrize("key", [None, "", "u-1/x", "other/%2FEvents%3B1/0-5", ("u-1", "t", "0-5")])
def test_malformed_partition_keys(key: Any) -> None:
    """A malformed partition key yields no row."""
    assert list(EXTRACTORS["coffea.nanoevents.factory.NanoEventsFactory"](Factory(key))) == []


def test_a_partition_key_has_file_tree_and_range() -> None:
    """A partition key in coffea's quoted form yields file, tree and range of entries."""
    (row,) = EXTRACTORS["coffea.nanoevents.factory.NanoEventsFactory"](
        Factory("u-1/%2FEvents%3B1/10-500")
    )
    assert row == {
        "uri": "/data/n.root", "tree": "Events", "first": 10, "last": 500, "unit": "entries"
    }  # fmt: skip
