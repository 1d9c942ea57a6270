"""Graphs as the user wrote them and as they ran: expressions, layers, functions, annotations."""

from __future__ import annotations

import json
import operator
import tracemalloc
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask._task_spec import Task
from distributed import Client, LocalCluster, SchedulerPlugin
from toolz import compose

import dask_strata
from dask_strata import Run
from dask_strata.recorder.graphs.expressions import expression_text
from dask_strata.recorder.graphs.functions import FunctionNames
from tests.conftest import rows

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")

HERE = __name__

#: Keys for which Dask asked for an annotation.
ASKED: list[Any] = []


def double(x: Any) -> Any:
    """Return twice the value."""
    return 2 * x


def large(x: int) -> bool:
    """Return whether a number is large."""
    return x > 3


def lengths(frame: Any) -> Any:
    """Return a frame."""
    return frame * 2


def read(path: str) -> Any:
    """Return a frame."""
    return pd.DataFrame({"path": [len(path)]})


def priority_of(base: int, key: Any) -> int:
    """Return a priority, as Dask asks for it."""
    ASKED.append(key)
    return base + len(str(key))


class Received(SchedulerPlugin):
    """Counts the tasks of each graph, and keeps their annotations as Dask passes them."""

    def __init__(self) -> None:
        self.graphs: list[tuple[set[Any], int]] = []
        self.annotations: dict[str, dict[Any, Any]] = {}

    def update_graph(self, scheduler: Any, **given: Any) -> None:
        """Called by Dask for each graph."""
        self.graphs.append((set(given["keys"]), len(given["tasks"])))
        for name, by_key in given["annotations"].items():
            self.annotations.setdefault(name, {}).update(by_key)


@dataclass
class Work:
    """A recorded run, and what the test itself and Dask's own objects said of it."""

    run: Run
    received: Received = field(default_factory=Received)
    truth: dict[str, Any] = field(default_factory=dict)

    def graph(self, line: str) -> dict[str, Any]:
        """Return the row of the graph whose line of code ends with a comment."""
        (found,) = rows(self.run, f"select * from graphs where code like '%# line: {line}'")
        return found

    def layers(self, line: str, stage: str) -> dict[str, dict[str, Any]]:
        """Return the layers of that graph in a stage, by name."""
        found = rows(
            self.run,
            f"""
            select l.* from graph_layers l join client_submissions c using (first_key, time)
            where c.code like '%# line: {line}' and stage = '{stage}'
            """,
        )
        return {row["layer"]: row for row in found}

    def tasks(self, line: str) -> list[dict[str, Any]]:
        """Return the tasks of that graph."""
        query = "select * from graph_tasks where submission = '{}'"
        return rows(self.run, query.format(self.graph(line)["submission"]))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Record one graph of each kind, and measure it with Dask's own means."""
    made = Work(None)  # type: ignore[arg-type]
    truth = made.truth
    frame = dd.from_pandas(pd.DataFrame({"x": range(12), "y": range(12)}), npartitions=3)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scheduler.add_plugin(made.received)
        (worker,) = cluster.scheduler.workers
        folder = tmp_path_factory.mktemp("graphs")
        with dask_strata.record(folder, client=client) as made.run:
            total = frame.reset_index().astype("float64").map_partitions(lengths).x.sum()
            truth["frame"] = total.expr.tree_repr()
            truth["frame, sent"] = [total.optimize(fuse=f).expr.tree_repr() for f in (0, 1)]
            total.compute()  # line: frame
            joined = frame.merge(frame.assign(z=1), on="x").groupby("y_x").z.mean()
            truth["joined"] = joined.expr.tree_repr()
            truth["joined, operations"] = {node._name for node in joined.expr.walk()}
            joined.compute()  # line: joined
            kept = frame.reset_index().astype("float64").persist()  # line: fused
            array = (da.ones((40, 40), chunks=10) + 1).map_blocks(double)
            truth["array"] = array.sum().__dask_graph__()
            dask.compute(array.sum())  # line: array
            truth["array, tasks"] = {n: len(dict(x)) for n, x in truth["array"].layers.items()}
            bag = db.from_sequence(range(10), npartitions=2).map(double).filter(large)
            truth["bag"] = list(bag.__dask_graph__().layers)
            bag.compute()  # line: bag
            with dask.annotate(
                priority=partial(priority_of, 3),
                retries=2,
                workers=[worker],
                allow_other_workers=True,
                mine={"who": "me", "how": partial(double, 7)},
            ):
                delayed = dask.delayed(double)(21, dask_key_name="annotated")
            assert delayed.compute() == 42  # line: annotated
            truth["asked"] = list(ASKED)
            secret = dd.from_map(read, ["https://me:hunter2@example.org/x.csv"])
            secret.path.sum().compute()  # line: secret
            del kept
    return made


def test_expression_is_what_dask_prints(work: Work) -> None:
    """The user's expression and the one that was sent are the texts of Dask's own display."""
    found = work.graph("frame")
    assert found["expression"] == work.truth["frame"]
    assert found["sent_expression"] in work.truth["frame, sent"]
    assert work.graph("joined")["expression"] == work.truth["joined"]
    assert "HashJoinP2P" in work.graph("joined")["sent_expression"]
    assert work.graph("array")["expression"] is None
    secret = work.graph("secret")
    assert "example.org" in secret["expression"]
    assert "hunter2" not in secret["expression"] + secret["sent_expression"]


def test_layers_as_written_are_the_users(work: Work) -> None:
    """Layers of the stage "written" are the user's operations, not those of the optimisation."""
    written = work.layers("joined", "written")
    assert set(written) == work.truth["joined, operations"]
    assert {"Merge", "Mean"} <= {row["type"] for row in written.values()}
    sent = {row["type"] for row in work.layers("joined", "sent").values()}
    assert {"HashJoinP2P", "TreeReduce"} <= sent
    assert not sent & {"Merge", "Mean"}
    written = work.layers("array", "written")
    assert set(written) == set(work.truth["array"].layers)


def test_numbers_of_tasks_before_and_after(work: Work) -> None:
    """Numbers of tasks are those of Dask's graphs: as written, and as the scheduler got them."""
    written = work.layers("array", "written")
    assert {name: row["n_tasks"] for name, row in written.items()} == work.truth["array, tasks"]
    assert {row["type"] for row in written.values() if row["n_tasks"] == 16} == {"Blockwise"}
    found = work.graph("array")
    assert found["n_tasks_written"] == len(work.truth["array"])
    for line in ("frame", "joined", "fused", "array", "bag"):
        found = work.graph(line)
        requested = {t["key"] for t in work.tasks(line) if t["requested"]}
        (received,) = [n for keys, n in work.received.graphs if set(map(str, keys)) == requested]
        assert found["n_tasks_received"] == received, line
    assert work.graph("frame")["n_tasks_written"] is None
    by_partition = work.layers("frame", "written")
    (source,) = [row for row in by_partition.values() if row["type"] == "FromPandas"]
    assert source["n_tasks"] == 3


def test_functions_of_fused_tasks(work: Work) -> None:
    """A fused task has the functions, prefixes and layers of the tasks inside it, in order."""
    fused = [t for t in work.tasks("bag") if t["fused_layers"]]
    assert len(fused) == 2
    for task in fused:
        assert json.loads(task["fused_layers"]) == work.truth["bag"]
        assert json.loads(task["fused_prefixes"]) == ["from_sequence", "double", "filter-large"]
        functions = json.loads(task["functions"])
        own = [name for name in functions if name.startswith(HERE)]
        assert own == [f"{HERE}.double", f"{HERE}.large"]
    fused = [t for t in work.tasks("array") if t["fused_layers"] and t["prefix"] == "sum"]
    assert len(fused) == 16
    for task in fused:
        layers = list(work.truth["array"].layers)
        assert json.loads(task["fused_layers"]) == layers[: layers.index(task["group"]) + 1]
        assert json.loads(task["functions"])[-2:] == [f"{HERE}.double", "numpy.sum"]
        assert task["function"] == "numpy.sum"


def test_functions_are_those_that_are_called(work: Work) -> None:
    """Methods have their names; no task has the name of Dask's wrapper or of a text."""
    called = {name for line in ("frame", "fused") for t in work.tasks(line) for name in _called(t)}
    assert {"dask.utils.M.reset_index", "dask.utils.M.astype", f"{HERE}.lengths"} <= called
    functions = {row["function"] for row in rows(work.run, "select function from graph_tasks")}
    assert not [f for f in functions if f and ("_execute_subgraph" in f or f == "builtins.str")]


def _called(task: dict[str, Any]) -> list[str]:
    return json.loads(task["functions"]) if task["functions"] else [task["function"]]


def test_annotations_are_the_values_that_dask_used(work: Work) -> None:
    """Annotations of tasks are the scheduler's; functions that compute them are only named."""
    (task,) = [t for t in work.tasks("annotated") if t["key"] == "annotated"]
    recorded = json.loads(task["annotations"])
    used = {
        name: values["annotated"]
        for name, values in work.received.annotations.items()
        if "annotated" in values
    }
    assert recorded.pop("mine") == {"who": "me", "how": f"{HERE}.double"}
    assert recorded == {name: value for name, value in used.items() if name != "mine"}
    assert recorded["priority"] == 3 + len("annotated")
    (layer,) = work.layers("annotated", "written").values()
    assert json.loads(layer["annotation_functions"]) == {"priority": f"{HERE}.priority_of"}
    values = json.loads(layer["annotations"])
    assert {"priority"} | set(values) == set(used)
    assert (values["retries"], values["allow_other_workers"]) == (2, True)
    texts = rows(
        work.run,
        "select annotations from graph_tasks union all select annotations from graph_layers",
    )
    assert not [row for row in texts if row["annotations"] and " at 0x" in row["annotations"]]
    assert work.truth["asked"] == ["annotated"]  # by Dask alone


def test_large_expressions_are_cut() -> None:
    """The text of an expression that Dask would print for hours is short."""
    frame = dd.from_pandas(pd.DataFrame({"x": range(4)}), npartitions=2)
    huge = reduce(lambda made, _: made + made, range(60), frame.x)
    text = expression_text([huge.expr])
    assert text is not None
    assert len(text.splitlines()) <= 501
    assert text.startswith("Add:\n  Add:\n    Add:")
    wide = dd.from_map(read, [str(i) for i in range(100_000)], meta=read("")).path.sum()
    text = expression_text([wide.expr])
    assert text is not None
    assert len(text) < 2_000
    assert "<list of 1>" in text or "<list of 100,000>" in text, text


def test_hostile_definitions_have_names() -> None:
    """Functions whose attributes raise are named by their types, and do not stop the others."""

    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __call__(self) -> None:
            """Be callable."""

    names = FunctionNames()
    hostile = Task("a", Hostile())
    assert names.of(hostile).function == f"{HERE}.{Hostile.__qualname__}"
    fused = Task.fuse(hostile, Task("b", operator.neg, hostile.ref()), key="c")
    found = names.of(fused)
    assert found.function == "_operator.neg"
    assert json.loads(found.functions or "") == [f"{HERE}.{Hostile.__qualname__}", "_operator.neg"]
    assert names.of(Task("d", np.add, 1, 2)).function == "numpy.add"


@pytest.mark.parametrize("form", ["arguments", "keywords", "nested", "composition", "fused"])
def test_a_task_of_many_functions_has_a_bounded_list(form: str) -> None:
    """A task has at most 200 names, however many functions it is given."""
    functions = [partial(len) for _ in range(20_000)]
    if form == "arguments":
        task = Task("a", print, *functions)
    elif form == "keywords":
        task = Task("a", print, **{f"k{i}": each for i, each in enumerate(functions)})
    elif form == "nested":
        task = Task("a", print, *(Task(None, each, functions[0]) for each in functions))
    elif form == "composition":
        task = Task("a", compose(*functions))
    else:
        first = Task("a", abs, -1)
        task = Task.fuse(first, Task("b", print, first.ref(), *functions))
    found = FunctionNames().of(task)
    assert len(json.loads(found.functions or "")) == 200


def test_the_names_of_many_functions_need_bounded_memory() -> None:
    """Names of 10,000 functions are kept, not those of all."""
    tasks = [Task(i, partial(len)) for i in range(60_000)]
    names = FunctionNames()
    tracemalloc.start()
    try:
        first = [names.of(task) for task in tasks[:10_000]]
        few = tracemalloc.get_traced_memory()[1]
        del first
        for task in tasks:
            names.of(task)
        many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert many < 2 * few
