"""The nodes of a graph: prefixes, their groups, and their tasks, within limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dask_strata.analysis.series.columns import Array
from dask_strata.analysis.words import count


@dataclass(frozen=True)
class Limits:
    """Limits on the size of a graph; what is beyond them is merged, with a note.

    Attributes
    ----------
    prefixes : int
        Most prefixes, those with the most tasks; another node has the others.
    groups : int
        Most groups of a prefix, those with the most tasks; another node has the others.
    tasks : int
        Most tasks of a group, failed ones first, then the longest; another node has the others.
    nodes : int
        Nodes above which no further tasks or groups have one.
    edges : int
        Most edges.
    """

    prefixes: int = 100
    groups: int = 40
    tasks: int = 24
    nodes: int = 1_500
    edges: int = 8_000


@dataclass(frozen=True)
class Tasks:
    """The tasks of a run, by column.

    `prefix` and `group` are indices of `prefixes` and `groups`; `n` counts lives of the key,
    `timed` those whose compute time is known, `erred` those that failed; a size of -1 is unknown.
    """

    ids: Array
    prefix: Array
    group: Array
    prefixes: tuple[str, ...]
    groups: tuple[str, ...]
    n: Array
    seconds: Array
    timed: Array
    nbytes: Array
    erred: Array


@dataclass(frozen=True)
class GraphNode:
    """A node of a graph.

    Attributes
    ----------
    kind : str
        prefix, group, task, or others: several prefixes, groups or tasks.
    name : str
        Its name; for a task its key.
    parent : int or None
        Index of the node that contains it.
    n_tasks, n_erred : int
        Tasks, and those that failed.
    seconds : float or None
        Compute time of all of them; None if it is unknown.
    nbytes : int or None
        Size of the results whose size is known; None if none is.
    task : int or None
        Id of the key of a task.
    """

    kind: str
    name: str
    parent: int | None
    n_tasks: int
    n_erred: int
    seconds: float | None
    nbytes: int | None
    task: int | None = None

    def renamed(self, name: str) -> GraphNode:
        """Return the node with another name."""
        return replace(self, name=name)


@dataclass(frozen=True)
class NodeTree:
    """Nodes, the node without children that has each task, and sentences about limits."""

    nodes: list[GraphNode]
    node_of: Array
    notes: list[str]


def node_tree(tasks: Tasks, limits: Limits, *, finest: str = "task") -> NodeTree:
    """Return the nodes of a graph.

    Parameters
    ----------
    tasks : Tasks
        The tasks.
    limits : Limits
        Limits on the nodes.
    finest : str, optional
        The finest kind of nodes: prefix, group or task.
    """
    made = _Builder(tasks)
    everything = np.arange(len(tasks.ids))
    kept, others, n_others = _parts(
        tasks, tasks.prefix, everything, tasks.prefixes, limits.prefixes
    )
    merged_groups = unlisted = 0
    whole: list[tuple[int, Array]] = []  # nodes whose tasks may have nodes
    for name, own in kept:
        place = made.add("prefix", name, None, own)
        groups, small, n_small = _parts(tasks, tasks.group, own, tasks.groups, limits.groups)
        if finest == "prefix" or len(groups) == 1:
            whole.append((place, own))
            continue
        if len(made.nodes) + len(groups) + 1 > limits.nodes:
            unlisted += 1
            continue
        whole += [(made.add("group", group, place, part), part) for group, part in groups]
        merged_groups += n_small
        if n_small:
            made.add("others", f"{n_small:,} other groups", place, small)
    if n_others:
        made.add("others", f"{n_others:,} other prefixes", None, others)
    if finest == "task":
        made.add_tasks(whole, limits)
    notes = []
    if n_others:
        notes.append(f"{n_others:,} prefixes with the fewest tasks are one node.")
    if merged_groups:
        notes.append(f"{merged_groups:,} groups with the fewest tasks of their prefix are merged.")
    if unlisted:
        notes.append(f"Groups of {unlisted:,} prefixes are left out above {limits.nodes:,} nodes.")
    if made.n_merged:
        notes.append(
            f"Of {count(made.n_merged, 'group')} with more than {limits.tasks} tasks, "
            f"{limits.tasks - 1} have a node each: failed ones first, then the longest."
        )
    if made.n_unlisted:
        notes.append(
            f"{count(made.n_unlisted, 'group')} cannot be expanded into tasks: the graph has at "
            f"most {limits.nodes:,} nodes."
        )
    return NodeTree(made.nodes, made.node_of, notes)


class _Builder:
    """Nodes, and for each task the last of them that contains it."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.nodes: list[GraphNode] = []
        self.node_of = np.zeros(len(tasks.ids), np.int64)
        #: Groups whose tasks have no node.
        self.n_unlisted = 0
        #: Groups of which some tasks share a node.
        self.n_merged = 0

    def add(self, kind: str, name: str, parent: int | None, own: Array) -> int:
        """Add a node of some tasks, by their index, and return its place."""
        t = self._tasks
        sizes = t.nbytes[own]
        known = sizes >= 0
        place = len(self.nodes)
        self.nodes.append(
            GraphNode(
                kind=kind,
                name=name,
                parent=parent,
                n_tasks=int(t.n[own].sum()),
                n_erred=int(t.erred[own].sum()),
                seconds=float(t.seconds[own].sum()) if t.timed[own].any() else None,
                nbytes=int(sizes[known].sum()) if known.any() else None,
                task=int(t.ids[own[0]]) if kind == "task" else None,
            )
        )
        self.node_of[own] = place
        return place

    def add_tasks(self, parents: list[tuple[int, Array]], limits: Limits) -> None:
        """Add nodes for the tasks of parents, the smallest first, while there is room."""
        for place, own in sorted(parents, key=lambda each: (len(each[1]), each[0])):
            if len(own) == 1:
                continue
            if len(self.nodes) + min(len(own), limits.tasks) > limits.nodes:
                self.n_unlisted += 1
                continue
            shown, others = self._most_notable(own, limits.tasks)
            for one in shown.tolist():
                self.add("task", "", place, np.array([one]))
            if len(others):
                self.n_merged += 1
                self.add("others", f"{len(others):,} other tasks", place, others)

    def _most_notable(self, own: Array, most: int) -> tuple[Array, Array]:
        """Return the tasks that have a node each, and the others, which share one."""
        if len(own) <= most:
            return own, own[:0]
        t = self._tasks
        ranked = own[np.lexsort((own, -t.seconds[own], t.erred[own] == 0))]
        return ranked[: most - 1], ranked[most - 1 :]


def _parts(
    tasks: Tasks, codes: Array, own: Array, names: tuple[str, ...], most: int
) -> tuple[list[tuple[str, Array]], Array, int]:
    """Return the codes with the most tasks, the tasks of the others, and the number of the others.

    Of each code, its name and tasks. No code is left out if it would be the only one.
    """
    order = own[np.argsort(codes[own], kind="stable")]
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if not len(first):
        return [], order, 0
    counts = np.add.reduceat(tasks.n[order], first)
    n_kept = len(first) if len(first) <= most else most - 1
    last = np.append(first[1:], len(order))
    # Of equal counts, the first by name; only those near the limit need their names.
    least = np.partition(counts, len(counts) - n_kept)[len(counts) - n_kept]
    near = np.flatnonzero(counts >= least)
    ranked = sorted(near.tolist(), key=lambda i: (-int(counts[i]), names[codes[order[first[i]]]]))
    kept = ranked[:n_kept]
    rest = np.ones(len(order), bool)
    for i in kept:
        rest[first[i] : last[i]] = False
    found = [(names[codes[order[first[i]]]], order[first[i] : last[i]]) for i in kept]
    return found, order[rest], len(first) - len(kept)
