"""Data of the page's charts: durations and activity by prefix, transfers between workers, graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.graph.fusion import Content, contents
from dask_strata.analysis.graph.graph import Graph, graph
from dask_strata.analysis.prefixes.activity import Activity, activity
from dask_strata.analysis.prefixes.durations import (
    BINS_PER_DECADE,
    MOST_PREFIXES,
    Box,
    Durations,
    durations,
)
from dask_strata.analysis.timeline.timeline import Timeline
from dask_strata.analysis.timeline.transfer_matrix import TransferMatrix, transfer_matrix
from dask_strata.report.page import colors
from dask_strata.report.page.columns import Container
from dask_strata.report.words import visible

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Kinds of nodes; the page's data has their index.
KINDS = ("prefix", "group", "task", "others")


def charts(run: Run, drawn: Timeline, names: dict[str, str]) -> dict[str, Any]:
    """Return the values that the templates of the charts use.

    Parameters
    ----------
    run : Run
        The run.
    drawn : Timeline
        Its timeline.
    names : dict
        Names of workers by address.
    """
    timed = durations(run)
    ended = [each.prefix for each in timed.prefixes]
    others = [prefix for prefix in drawn.prefixes if prefix not in set(ended)]
    active = activity(drawn, (ended + others)[:MOST_PREFIXES])
    matrix = transfer_matrix(run)
    drawn_graph = graph(run)
    drawn_names = {node.name for node in drawn_graph.nodes if node.kind == "prefix"}
    made = tuple(content for content in contents(run) if content.prefix in drawn_names)
    return {
        "durations": timed,
        "activity": active,
        "matrix": matrix,
        "graph": drawn_graph,
        "fused": tuple(content for content in made if content.fused),
        "charts": {
            "bins_per_decade": BINS_PER_DECADE,
            "durations": _durations(timed, names),
            "activity": _activity(active),
            "matrix": _matrix(matrix, names),
            "contents": _contents(made),
            "kinds": KINDS,
        },
        "graph_data": _graph(drawn_graph),
    }


def _durations(timed: Durations, names: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "prefix": visible(each.prefix),
            "color": colors.color_of(each.prefix),
            "box": _box(each.box),
            "bins": each.bins,
            "workers": [
                [visible(names.get(w.worker, w.worker)), _box(w.box)] for w in each.workers
            ],
            "others": each.n_other_workers,
        }
        for each in timed.prefixes
    ]


def _box(box: Box) -> list[float]:
    """Return the number and the quartiles of a box; seconds have six digits."""
    return [box.n, *(float(f"{s:.6g}") for s in (box.low, box.q1, box.median, box.q3, box.high))]


def _activity(active: Activity) -> dict[str, Any]:
    return {
        "begin": active.begin / 1e3,
        "step": active.step / 1e3,
        "prefixes": [
            {
                "most": each.most,
                "color": colors.color_of(each.prefix),
                "running": [float(f"{n:.3g}") if n else 0 for n in each.running],
            }
            for each in active.prefixes
        ],
    }


def _matrix(matrix: TransferMatrix, worker_names: dict[str, str]) -> dict[str, Any]:
    names = [visible(worker_names.get(end.worker, end.worker)) for end in matrix.ends]
    if matrix.n_others:
        names.append(f"{matrix.n_others:,} others")
    return {
        "names": names,
        "cells": [
            [c.source, c.destination, c.n, c.n_keys, c.nbytes, c.seconds] for c in matrix.cells
        ],
    }


def _contents(made: tuple[Content, ...]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in made:
        found.setdefault(visible(each.prefix), []).append(
            {
                "n": each.n_tasks,
                "functions": [visible(name) for name in each.functions],
                "layers": [visible(name) for name in each.layers],
                "more": each.n_left_out,
            }
        )
    return found


def _graph(drawn: Graph) -> str:
    """Return the nodes and edges as a container of columns, in base64."""
    nodes, edges, made = drawn.nodes, drawn.edges, Container()
    made.texts("name", (visible(node.name) for node in nodes))

    def ints(name: str, values: list[int]) -> None:
        made.ints(name, np.array(values, np.int64))

    ints("kind", [KINDS.index(node.kind) for node in nodes])
    ints("parent", [-1 if node.parent is None else node.parent for node in nodes])
    ints("n_tasks", [node.n_tasks for node in nodes])
    ints("n_erred", [node.n_erred for node in nodes])
    ints("micros", [-1 if node.seconds is None else round(node.seconds * 1e6) for node in nodes])
    ints("nbytes", [-1 if node.nbytes is None else node.nbytes for node in nodes])
    made.ints("source", edges.source, delta=True)
    made.ints("target", edges.target)
    made.ints("n", edges.n)
    made.ints("edge_bytes", edges.nbytes)
    made.ints("n_unknown", edges.n_unknown)
    return made.text()
