"""The graph by prefix, group and task, the contents of tasks, and the matrix of transfers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from dask_strata import Run, open_run
from dask_strata.analysis.graph.fusion import contents
from dask_strata.analysis.graph.graph import Graph, graph
from dask_strata.analysis.graph.nodes import Limits
from dask_strata.analysis.timeline.traffic import pairs
from dask_strata.analysis.timeline.transfer_matrix import transfer_matrix
from tests.support.planned_runs import Plan, fused, planned, write
from tests.support.synthetic import T0, Process, life, new_run

MATRIX = "dask_strata.analysis.timeline.transfer_matrix"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a run."""
    return planned(22)


@pytest.fixture(scope="module")
def run(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the plan."""
    return open_run(write(tmp_path_factory.mktemp("planned") / "r", plan))


def ancestors(drawn: Graph, node: int, kind: str) -> str | None:
    """Return the name of the node of a kind that contains a node, or is it."""
    at: int | None = node
    while at is not None:
        if drawn.nodes[at].kind == kind:
            return drawn.nodes[at].name
        at = drawn.nodes[at].parent
    return None


def sums(plan: Plan, kind: str) -> dict[tuple[str, str], list[int]]:
    """Return number, bytes and unknown sizes of the edges between prefixes, groups or tasks."""
    tasks = {task.key: task for task in plan.tasks}
    name = {"task": "key"}.get(kind, kind)
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, dependency in plan.edges:
        source, target = tasks[dependency], tasks[key]
        sum_ = found[getattr(source, name), getattr(target, name)]
        sum_[0] += 1
        sum_[1] += source.nbytes or 0
        sum_[2] += source.nbytes is None
    return dict(found)


def drawn_sums(drawn: Graph, kind: str) -> dict[tuple[str, str], list[int]]:
    """Return the same of a graph, for edges whose ends are within nodes of this kind."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    edges = drawn.edges
    for a, b, *numbers in zip(
        *(c.tolist() for c in (edges.source, edges.target, edges.n, edges.nbytes, edges.n_unknown)),
        strict=True,
    ):
        ends = ancestors(drawn, a, kind), ancestors(drawn, b, kind)
        if None not in ends:
            found[ends] = [x + y for x, y in zip(found[ends], numbers, strict=True)]  # type: ignore[index]
    return dict(found)


def test_edges_have_the_dependencies_and_bytes_of_the_plan(plan: Plan, run: Run) -> None:
    """Sums by prefix are exact; those by group and task are, where these have nodes."""
    drawn = graph(run)
    assert drawn.n_edges == len(plan.edges)
    assert drawn.n_outside == 0
    assert drawn_sums(drawn, "prefix") == sums(plan, "prefix")
    by_group = drawn_sums(drawn, "group")
    assert by_group
    assert by_group.items() <= sums(plan, "group").items()
    by_task = drawn_sums(drawn, "task")
    assert by_task
    assert by_task.items() <= sums(plan, "task").items()


def test_nodes_have_the_tasks_of_the_plan(plan: Plan, run: Run) -> None:
    """Numbers, failures, compute time and bytes; parts of a node add up to it."""
    drawn = graph(run)
    assert drawn.n_tasks == len(plan.tasks)
    for kind, name in (("prefix", "prefix"), ("group", "group"), ("task", "key")):
        for node in (n for n in drawn.nodes if n.kind == kind):
            own = [t for t in plan.tasks if getattr(t, name) == node.name]
            assert node.n_tasks == len(own)
            assert node.n_erred == sum(t.erred for t in own)
            assert node.seconds == pytest.approx(sum(t.stop - t.start for t in own) / 1e3)
            sizes = [t.nbytes for t in own if t.nbytes is not None]
            assert node.nbytes == (sum(sizes) if sizes else None)
    children = defaultdict(int)
    for node in drawn.nodes:
        if node.parent is not None:
            children[node.parent] += node.n_tasks
    assert children
    assert all(drawn.nodes[parent].n_tasks == n for parent, n in children.items())
    # A prefix of one group has no node for it; a group of few tasks has a node for each.
    groups = Counter(group for _, group in {(t.prefix, t.group) for t in plan.tasks})
    assert all(groups[n.name] for n in drawn.nodes if n.kind == "group")
    few = {g for g, n in Counter(t.group for t in plan.tasks).items() if 1 < n <= Limits.tasks}
    shown = defaultdict(set)
    for node in drawn.nodes:
        if node.kind == "task":
            shown[drawn.nodes[node.parent].name].add(node.name)  # type: ignore[index]
    complete = {g: {t.key for t in plan.tasks if t.group == g} for g in few}
    assert {g: keys for g, keys in shown.items() if g in few} == {
        g: keys for g, keys in complete.items() if g in shown
    }
    assert len(shown) > 3


def test_a_large_group_has_its_failed_and_longest_tasks(tmp_path: Path) -> None:
    """The others share a node; numbers of the parts and of their edges add up to those of all."""
    made = planned(27, n_tasks=400, n_prefixes=3)
    drawn = graph(open_run(write(tmp_path / "r", made)))
    ranked = sorted(made.tasks, key=lambda t: (not t.erred, t.start - t.stop))
    large = {
        group: tasks
        for group in {t.group for t in ranked}
        if len(tasks := [t for t in ranked if t.group == group]) > Limits.tasks
    }
    nodes = {n.name: i for i, n in enumerate(drawn.nodes) if n.kind in ("group", "prefix")}
    assert any(t.erred for tasks in large.values() for t in tasks)
    for group, tasks in large.items():
        assert sum(t.erred for t in tasks) < Limits.tasks - 1
        # A prefix of one group has no node for it.
        place = nodes.get(group, nodes[tasks[0].prefix])
        parts = [n for n in drawn.nodes if n.parent == place]
        assert [n.name for n in parts[:-1]] == [t.key for t in tasks[: Limits.tasks - 1]]
        others = tasks[Limits.tasks - 1 :]
        assert (parts[-1].kind, parts[-1].name) == ("others", f"{len(others)} other tasks")
        assert parts[-1].n_tasks == len(others)
    assert any("failed ones first, then the longest" in note for note in drawn.notes)
    assert drawn_sums(drawn, "prefix") == sums(made, "prefix")


@pytest.mark.parametrize(
    "limits",
    [
        Limits(prefixes=3),
        Limits(groups=2),
        Limits(tasks=2),
        Limits(nodes=15),
        Limits(edges=100),
        Limits(edges=16),
        Limits(edges=2),
    ],
)
def test_a_limit_leaves_out_only_what_is_counted(plan: Plan, run: Run, limits: Limits) -> None:
    """Nodes and edges are within the limits, a note is on the page, and no task is missing."""
    drawn = graph(run, limits)
    assert drawn.notes
    assert len(drawn.edges) <= limits.edges
    top = [node for node in drawn.nodes if node.parent is None]
    assert sum(node.n_tasks for node in top) == len(plan.tasks)
    assert len(top) <= limits.prefixes
    assert len(drawn.nodes) <= max(limits.nodes, len(top))
    if limits.edges > 10:
        assert drawn.edges.n.sum() == len(plan.edges)
    else:
        assert any("edges with the fewest" in note for note in drawn.notes)
    true = sums(plan, "prefix")
    for ends, numbers in drawn_sums(drawn, "prefix").items():
        if limits == replace(Limits(), edges=limits.edges):
            assert numbers == true[ends]


def test_many_groups_of_one_task_are_merged(tmp_path: Path) -> None:
    """Keys that the user chose are each a group: the first by name are kept."""
    folder = new_run(tmp_path / "r")
    scheduler = Process(folder, "scheduler-1", address="tcp://s:1")
    keys = [f"x-{n:03}" for n in range(100)]
    rows = [
        row for n, key in enumerate(keys) for row in life(key, 1 + n / 20, 2 + n / 20, "tcp://w:1")
    ]
    scheduler.write("scheduler_transitions", sorted(rows, key=lambda row: row["time"]))
    scheduler.write("graph_tasks", [{"key": k, "prefix": "x", "group": k} for k in keys])
    scheduler.write("graph_edges", [{"key": "x-099", "dependency": "elsewhere"}])
    scheduler.end()
    drawn = graph(open_run(folder))
    assert [node.name for node in drawn.nodes][:3] == ["x", "x-000", "x-001"]
    assert drawn.nodes[-1].name == "61 other groups"
    assert drawn.nodes[-1].n_tasks == 61
    assert drawn.n_outside == 1


def test_a_run_without_tasks_has_no_graph(tmp_path: Path) -> None:
    """No node, no edge, no error."""
    run = open_run(new_run(tmp_path / "r"))
    drawn = graph(run)
    assert (drawn.nodes, len(drawn.edges), drawn.n_tasks) == ((), 0, 0)
    assert contents(run) == ()
    assert transfer_matrix(run).cells == ()


def test_fused_tasks_have_their_contents(tmp_path: Path) -> None:
    """Functions in order, and layers and prefixes of what was fused; others have their function."""
    made = planned(23, n_tasks=60, n_prefixes=3)
    parts = fused(["m.read", "m.clean", "m.sum"], ["read-1", "clean-2"], ["read", "clean"])
    found = contents(open_run(write(tmp_path / "r", made, p1=parts)))
    of = {content.prefix: content for content in found}
    assert of["p1"].functions == ("m.read", "m.clean", "m.sum")
    assert of["p1"].layers == ("read-1", "clean-2")
    assert of["p1"].prefixes == ("read", "clean")
    assert of["p1"].fused
    assert of["p0"].functions == ("f.p0",)
    assert not of["p0"].fused
    counts = Counter(task.prefix for task in made.tasks)
    assert {prefix: content.n_tasks for prefix, content in of.items()} == counts


def test_long_or_damaged_contents(tmp_path: Path) -> None:
    """Names beyond the limit are counted; JSON that is damaged is as none."""
    made = planned(24, n_tasks=30, n_prefixes=3)
    names = [f"f{n}" for n in range(50)]
    parts = {"p0": fused(names, names, names), "p1": {"functions": "[broken", "fused_layers": "7"}}
    of = {c.prefix: c for c in contents(open_run(write(tmp_path / "r", made, **parts)))}
    assert of["p0"].functions == tuple(names[:20])
    assert of["p0"].n_left_out == 60
    assert of["p1"].functions == ("f.p1",)
    assert not of["p1"].fused


def test_the_matrix_has_the_transfers_of_the_plan(plan: Plan, run: Run) -> None:
    """Bytes, seconds, results and numbers of each pair; unknown bytes are none."""
    found = transfer_matrix(run)
    assert [end.worker for end in found.ends] == [*plan.workers, "a client"]
    assert [end.name for end in found.ends] == [*map(str, range(len(plan.workers))), None]
    true = defaultdict(list)
    for source, to, *numbers in plan.transfers:
        true[source, to or "a client"].append(numbers)
    seen = {}
    for cell in found.cells:
        seen[found.ends[cell.source].worker, found.ends[cell.destination].worker] = cell
    assert set(seen) == set(true)
    for ends, transfers in true.items():
        cell = seen[ends]
        sizes = [nbytes for _, _, nbytes, _ in transfers if nbytes is not None]
        assert cell.n == len(transfers)
        assert cell.n_keys == 3 * len(transfers)
        assert cell.nbytes == (sum(sizes) if sizes else None)
        assert cell.seconds == pytest.approx(sum(b - a for a, b, *_ in transfers) / 1e3)
    assert sum(p.nbytes for p in pairs(run)) == sum(c.nbytes or 0 for c in found.cells)


def test_workers_beyond_the_limit_are_one_row(plan: Plan, run: Run) -> None:
    """The sums stay; the workers with the most bytes are kept."""
    whole = transfer_matrix(run)
    with mock.patch(f"{MATRIX}.MOST_WORKERS", 3):
        found = transfer_matrix(run)
    assert found.n_others == len(plan.workers) + 1 - 3
    moved: Counter[str] = Counter()
    for source, to, _, _, nbytes, _ in plan.transfers:
        moved[source] += nbytes or 0
        moved[to or "a client"] += nbytes or 0
    assert {end.worker for end in found.ends} == {worker for worker, _ in moved.most_common(3)}
    for name in ("n", "n_keys", "nbytes", "seconds"):
        a, b = ([getattr(c, name) or 0 for c in m.cells] for m in (whole, found))
        assert sum(a) == pytest.approx(sum(b))


def test_a_transfer_without_an_end_is_unknown(tmp_path: Path) -> None:
    """Its seconds are none, not zero."""
    folder = new_run(tmp_path / "r")
    worker = Process(folder, "worker-1", address="tcp://w:1", name="w", nthreads=1)
    row = {"number": 1, "end": "incoming", "start": T0, "stop": None, "worker": "tcp://w:1"}
    worker.write("transfer_ends", [{**row, "peer": "tcp://v:1", "total_bytes": None}])
    worker.end()
    [cell] = transfer_matrix(open_run(folder)).cells
    assert (cell.n, cell.nbytes, cell.seconds) == (1, None, None)
