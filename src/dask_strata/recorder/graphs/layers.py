"""Layers of graphs, as the user wrote them and as the client sent them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from dask_strata.recorder.graphs.expressions import expression_of, is_expression
from dask_strata.recorder.pipeline.redact import redact_json
from dask_strata.recorder.pipeline.text import FUNCTIONS, json_text, name_of, safe_repr, type_name

#: Stages of a graph: as the user wrote it, and as the client sent it to the scheduler.
WRITTEN, SENT = "written", "sent"

#: Bound on the visited layers of the collections of one submission, which can share layers.
_MOST = 100_000


def layers_of(sent: Any, written: list[Any], optimised: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the layers of a submission, without generating any task.

    A layer that was sent under its name in the user's graph is yielded once, as written.

    Parameters
    ----------
    sent : object
        The graph or expression that the client sent.
    written : list
        The collections that the user submitted; empty if the user submitted a graph.
    optimised : list
        The same collections after Dask optimised their expressions on the client.
    """
    expressions = [expr for expr in map(expression_of, written) if expr is not None]
    if is_expression(sent):
        sent_graphs = list(_graphs_in(sent))
        operations = [] if _is_plain_graph(sent) else [sent]
    else:
        sent_graphs = [] if expressions else [sent]
        operations = sent_expressions(sent, optimised)
    # Newer versions send graphs as they were written, and optimise them on the scheduler.
    as_sent = not written or (is_expression(sent) and not expressions)
    graphs = sent_graphs if as_sent else [_graph_of(collection) for collection in written]
    parts = (
        (WRITTEN, _graph_layers(graphs)),
        (WRITTEN, _nodes(expressions)),
        (SENT, _nodes(operations)),
        (SENT, _graph_layers(sent_graphs)),
    )
    known: set[str] = set()
    for stage, rows in parts:
        for row in islice(rows, _MOST):
            if row["layer"] not in known:
                known.add(row["layer"])
                yield {"stage": stage, **row}


def sent_expressions(sent: Any, optimised: list[Any]) -> list[Any]:
    """Return the expressions that the client sent; empty if it sent graphs.

    Parameters
    ----------
    sent : object
        The graph or expression that the client sent.
    optimised : list
        The collections after Dask optimised their expressions on the client.
    """
    if not is_expression(sent):  # an older version of Dask, which sends graphs only
        return [expr for expr in map(expression_of, optimised) if expr is not None]
    return [] if any(_wrapped(node) is not None for node in sent.walk()) else [sent]


def _graph_of(collection: Any) -> Any:
    """Return the graph of a collection; None if it has an expression, or no graph at hand."""
    if expression_of(collection) is not None:
        return None
    try:
        return collection.dask
    except Exception:  # noqa: BLE001  other libraries' collections may do anything
        return None


def _graphs_in(expr: Any) -> Iterator[Any]:
    """Yield the `HighLevelGraph` objects inside an expression."""
    for node in expr.walk():
        if _wraps_graph(node):
            yield _wrapped(node)


def _nodes(expressions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the operations of expressions; not the graphs that they wrap."""
    for node in (node for expr in expressions for node in expr.walk()):
        name = getattr(node, "_name", None)
        is_container = type(node).__name__.startswith("_")
        if isinstance(name, str) and not is_container and not _wraps_graph(node):
            yield {
                "layer": name,
                "type": type(node).__name__,
                "n_tasks": None,
                "dependencies": json_text([getattr(d, "_name", None) for d in node.dependencies()]),
            }


def _wrapped(node: Any) -> Any:
    """Return the graph that one of Dask's expressions wraps; None if it wraps none."""
    return node.operand("dsk") if "dsk" in getattr(node, "_parameters", ()) else None


def _wraps_graph(node: Any) -> bool:
    return isinstance(getattr(_wrapped(node), "layers", None), dict)


def _is_plain_graph(expr: Any) -> bool:
    return type(_wrapped(expr)) is dict


def _graph_layers(graphs: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for graph in graphs:
        dependencies = getattr(graph, "dependencies", {})
        layers = getattr(graph, "layers", None)
        for name, layer in layers.items() if isinstance(layers, dict) else ():
            yield {
                "layer": name if isinstance(name, str) else safe_repr(name, 1000),
                "type": type(layer).__name__,
                "n_tasks": _n_tasks(layer),
                "dependencies": json_text(sorted(map(str, dependencies.get(name, ())))),
                **_annotations(getattr(layer, "annotations", None)),
            }


def _n_tasks(layer: Any) -> int | None:
    """Return the number of tasks of a layer; None if Dask would have to generate them."""
    module = sys.modules.get("dask.blockwise")
    if module is not None and isinstance(layer, module.Blockwise):
        return len(layer)  # Dask computes it from the numbers of blocks
    return len(layer) if getattr(layer, "is_materialized", lambda: True)() else None


def _annotations(annotations: Any) -> dict[str, Any]:
    """Return annotations, apart from those that Dask computes for each key by calling them."""
    if not isinstance(annotations, dict) or not annotations:
        return {}
    computed = {name: value for name, value in annotations.items() if callable(value)}
    values = {name: value for name, value in annotations.items() if name not in computed}
    names = {
        name: name_of(value) if isinstance(value, FUNCTIONS) else type_name(value)
        for name, value in computed.items()
    }
    return {
        "annotations": redact_json(values) if values else None,
        "annotation_functions": json_text(names) if names else None,
    }
