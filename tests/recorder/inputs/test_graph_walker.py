"""The walk through definitions: bounded, deaf to what objects say, never raising."""

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
from dask_strata.recorder.inputs.extractors.places import absolute, looks_like_path, text_path
from dask_strata.recorder.inputs.graph_walker import MAX_PARTS, GraphWalker
from dask_strata.recorder.inputs.source import Definitions, InputSource
from dask_strata.recorder.pipeline.redact import redact_path, redact_text

#: Whether hostile objects are so: Dask and Hypothesis have questions of their own.
_ARMED: list[bool] = []


def walk(walker: GraphWalker, task: Any) -> list[dict[str, Any]]:
    """Return what a walk finds while hostile objects are hostile."""
    _ARMED.append(True)
    try:
        return walker.claims(task)
    finally:
        _ARMED.clear()


def defend() -> None:
    """Raise, if this is a walk."""
    if _ARMED:
        raise RuntimeError


def function(*_: Any, **__: Any) -> None:
    """Take anything."""


def found(*args: Any, own: dict[Any, Any] | None = None, **kwargs: Any) -> list[str]:
    """Return the uris that a task with these arguments claims."""
    return uris(Task("key", function, *args, **kwargs), own or {})


def uris(task: Any, own: dict[Any, Any] | None = None) -> list[str]:
    """Return the uris that a task claims, after a look at whether anything failed."""
    walker = GraphWalker({"key": task, **(own or {})}, {})
    rows = walk(walker, task)
    assert not walker.failures
    return [row["uri"] for row in rows]


class Hostile:
    """Answers every question with an exception."""

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
    """Text that does not want to be compared."""

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
    """A list that does not want to be looked into."""

    def __iter__(self) -> Any:
        defend()
        return list.__iter__(self)

    def __len__(self) -> int:
        defend()
        return list.__len__(self)


class HostilePath:
    """A path that kills who asks for it."""

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
    """Whatever a definition holds, looking at it raises nothing and yields plain rows."""
    own = {name: DataNode(name, value) for name, value in data.items()}
    own["key"] = Task("key", function, *args)  # type: ignore[assignment]
    rows = walk(GraphWalker(own, {}), own["key"])
    json.dumps(rows)
    assert all(isinstance(row["uri"], str) for row in rows)


@given(st.text(max_size=60) | st.from_regex(r"(/|\w+://|\w+\.)[\w:=@ &?/.-]{0,40}", fullmatch=True))
def test_any_text_can_be_judged(text: str) -> None:
    """Whether a text is a path is answered for each, and quick redaction is redaction."""
    if looks_like_path(text):
        assert text_path(text) == text
        assert absolute(absolute(text)) == absolute(text)
    assert redact_path(text) == redact_text(text)


def test_where_paths_are_found() -> None:
    """In containers, partials, nested tasks, by reference, and in data, each path once."""
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
    """Names within a fused task lead to data inside it and outside of it."""
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


def test_references_that_go_in_circles() -> None:
    """They lead nowhere."""
    own = {"a": Alias("a", "b"), "b": Alias("b", "a"), "c": Alias("c", "c")}
    assert found(Alias("a"), Alias("c"), own=own) == []


def test_the_walk_is_bounded() -> None:
    """Depth and number of parts have limits; what is cut is counted where it matters."""
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
    """Take anything."""


def test_where_functions_write_to_is_no_input() -> None:
    """The paths of functions that save are left out, not what their own arguments read."""
    task = Task("key", write_table, "/out.csv", Task(None, function, "/in.csv"))
    assert uris(task) == ["/in.csv"]


def test_a_graph_of_any_size_is_looked_at_in_slices() -> None:
    """Each call does a part, the rows are all there in the end."""
    source = InputSource()
    n = 30_000
    definitions = Definitions("s", {})
    definitions.take({f"k{i}": Task(f"k{i}", function, f"/data/{i}.csv") for i in range(n)})
    source.add(definitions)
    first = sum(batch.n for batch in source())
    assert 0 < first < n
    source.end()
    batches = list(source())
    assert first + sum(batch.n for batch in batches) == n
    assert {batch.table for batch in batches} == {"claimed_inputs"}
    assert list(source()) == []


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
def test_partition_keys_that_say_nothing(key: Any) -> None:
    """They are left out."""
    assert list(EXTRACTORS["coffea.nanoevents.factory.NanoEventsFactory"](Factory(key))) == []


def test_a_partition_key_has_file_tree_and_range() -> None:
    """As coffea writes it, quoted."""
    (row,) = EXTRACTORS["coffea.nanoevents.factory.NanoEventsFactory"](
        Factory("u-1/%2FEvents%3B1/10-500")
    )
    assert row == {
        "uri": "/data/n.root", "tree": "Events", "first": 10, "last": 500, "unit": "entries"
    }  # fmt: skip
