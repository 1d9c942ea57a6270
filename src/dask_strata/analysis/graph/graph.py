"""The graph of a run by prefix, each with its groups, and these with their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.graph.nodes import GraphNode, Limits, NodeTree, Tasks, node_tree
from dask_strata.analysis.series.columns import Array, Index, Names, columns

if TYPE_CHECKING:
    from dask_strata.run import Run

#: One row for each life of a key, in order; unknown numbers are -1. In a damaged
#: record, all rows that lack a key are one task.
_TASKS = """
    select coalesce(_key::bigint, -1) as id, coalesce(prefix, '(unknown)') as prefix,
           coalesce("group", prefix, '(unknown)') as grp,
           coalesce(compute_seconds, -1) as seconds, coalesce(nbytes, -1) as nbytes,
           coalesce((state = 'erred')::int, -1) as erred
    from tasks order by _key, life
"""

#: -2 is no task.
_EDGES = """
    select distinct coalesce(_key::bigint, -2) as task,
           coalesce(_dependency::bigint, -2) as dependency
    from graph_edges
"""

_KEYS = "select _key::bigint as id, key from _keys where list_contains($1, _key::bigint)"


@dataclass(frozen=True)
class GraphEdges:
    """Dependencies between nodes without children, by the indices of the nodes.

    Attributes
    ----------
    source, target : array of int
        The node of the dependencies, and that of the tasks that need them.
    n : array of int
        Pairs of a task and a dependency of it.
    nbytes : array of int
        Sum of the sizes of the dependencies' results, once for each task that needs them.
    n_unknown : array of int
        Pairs in which the size of the result is unknown.
    """

    source: Array
    target: Array
    n: Array
    nbytes: Array
    n_unknown: Array

    def __len__(self) -> int:
        return len(self.n)


@dataclass(frozen=True)
class Graph:
    """The graph of a run.

    Attributes
    ----------
    nodes : tuple of GraphNode
        Prefixes, their groups, and their tasks; parents come before their children.
    edges : GraphEdges
        Dependencies between nodes that have no children.
    n_tasks, n_edges : int
        Tasks, and dependencies between them.
    n_outside : int
        Dependencies of which one end is no task of the run; they are in no edge.
    notes : tuple of str
        Sentences about what is left out.
    """

    nodes: tuple[GraphNode, ...]
    edges: GraphEdges
    n_tasks: int
    n_edges: int
    n_outside: int
    notes: tuple[str, ...]


def graph(run: Run, limits: Limits | None = None) -> Graph:
    """Return the graph of a run.

    Parameters
    ----------
    run : Run
        The run.
    limits : Limits, optional
        Limits on the size of the answer.
    """
    limits = limits or Limits()
    tasks = _tasks(run)
    needs, needed, n_outside = _edges(run, tasks)
    for level in ("task", "group", "prefix"):
        tree = node_tree(tasks, limits, finest=level)
        edges = _between(tree, tasks, needs, needed)
        if len(edges) <= limits.edges:
            break
    notes = list(tree.notes)
    if level != "task":
        notes.append(
            f"No node is smaller than a {level}: others have more than {limits.edges:,} edges."
        )
    edges, n_dropped = _largest(edges, limits.edges)
    if n_dropped:
        notes.append(f"{n_dropped:,} edges with the fewest dependencies are left out.")
    return Graph(
        nodes=_named(run, tree.nodes),
        edges=edges,
        n_tasks=int(tasks.n.sum()),
        n_edges=len(needs),
        n_outside=n_outside,
        notes=tuple(notes),
    )


def _tasks(run: Run) -> Tasks:
    """Return the tasks, one for each key: sums over its lives, and the size of its last result."""
    names = {"prefix": Names(), "grp": Names()}
    found = columns(run, _TASKS, names=names)
    ids, first, number = np.unique(found["id"], return_index=True, return_inverse=True)
    n = len(ids)
    last = np.append(first[1:], len(number)) - 1 if n else first
    seconds, nbytes, erred = found["seconds"], found["nbytes"], found["erred"]
    size = np.full(n, -1, np.int64)
    known = nbytes >= 0
    size[number[known]] = nbytes[known]  # the last life of a key is the last to be written
    return Tasks(
        ids=ids,
        prefix=found["prefix"][last],
        group=found["grp"][last],
        prefixes=tuple(names["prefix"].names),
        groups=tuple(names["grp"].names),
        n=np.bincount(number, minlength=n),
        seconds=np.bincount(number, weights=np.maximum(seconds, 0), minlength=n),
        timed=np.bincount(number, weights=seconds >= 0, minlength=n).astype(np.int64),
        nbytes=size,
        erred=np.bincount(number, weights=erred == 1, minlength=n).astype(np.int64),
    )


def _edges(run: Run, tasks: Tasks) -> tuple[Array, Array, int]:
    """Return the tasks and their dependencies, by index, and the number of edges to others."""
    found = columns(run, _EDGES)
    index = Index(tasks.ids)
    needs, needed = (index.find(found[name]) for name in ("task", "dependency"))
    known = (needs >= 0) & (needed >= 0)
    return needs[known], needed[known], int(len(known) - known.sum())


def _between(tree: NodeTree, tasks: Tasks, needs: Array, needed: Array) -> GraphEdges:
    """Return the edges between nodes, from those between tasks."""
    if not len(needs):
        none = np.empty(0, np.int64)
        return GraphEdges(none, none, none, none, none)
    n_nodes = len(tree.nodes)
    pair, number = np.unique(
        tree.node_of[needed] * n_nodes + tree.node_of[needs], return_inverse=True
    )
    size = tasks.nbytes[needed]
    n = len(pair)
    # Integers: sums of bytes as floats would be rounded above 2^53.
    nbytes = np.zeros(n, np.int64)
    np.add.at(nbytes, number, np.maximum(size, 0))
    return GraphEdges(
        source=pair // n_nodes,
        target=pair % n_nodes,
        n=np.bincount(number, minlength=n),
        nbytes=nbytes,
        n_unknown=np.bincount(number, weights=size < 0, minlength=n).astype(np.int64),
    )


def _largest(edges: GraphEdges, most: int) -> tuple[GraphEdges, int]:
    """Return the edges with the most dependencies, and the number of the others."""
    dropped = len(edges) - most
    if dropped <= 0:
        return edges, 0
    kept = np.sort(np.argsort(-edges.n, kind="stable")[:most])
    return GraphEdges(*(getattr(edges, name)[kept] for name in edges.__dataclass_fields__)), dropped


def _named(run: Run, nodes: list[GraphNode]) -> tuple[GraphNode, ...]:
    """Return the nodes, tasks with their keys."""
    wanted = [node.task for node in nodes if node.task is not None]
    keys = {row["id"]: row["key"] for row in run.rows(_KEYS, wanted)} if wanted else {}
    return tuple(
        node if node.task is None else node.renamed(keys.get(node.task, "(unknown)"))
        for node in nodes
    )
