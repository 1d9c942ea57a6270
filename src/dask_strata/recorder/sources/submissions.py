"""Submissions, as a client sends them: the user's line, and the layers of the graph."""

from __future__ import annotations

import linecache
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

import dask
import distributed

from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, json_text, safe_repr
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch


def _folder_of(file: str, levels: int) -> str:
    folder = os.path.abspath(file)
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder + os.sep


#: Frames from these folders are Dask's or dask-strata's, not the user's.
_NOT_USER = (
    _folder_of(dask.__file__, 1),
    _folder_of(distributed.__file__, 1),
    _folder_of(__file__, 3),
)
_STDLIB = _folder_of(os.__file__, 1)

#: For how long the layers of graphs are looked at before what else was seen is handed over.
_LAYER_SECONDS = 0.03


class SubmissionSource(Source):
    """Makes batches of ``client_submissions`` and ``graph_layers``.

    Parameters
    ----------
    client : distributed.Client
        The client.
    code : bool
        Whether the text of the user's line is recorded.
    """

    def __init__(self, client: Any, *, code: bool) -> None:
        self._client, self._code = client, code
        self._sent: deque[tuple[int, Any, list[Any], list[tuple[str, int, str]]]] = deque()
        self._graphs: deque[tuple[dict[str, Any], Any]] = deque()
        self._taker = watch_submissions(client, self._take)

    def _take(self, expr: Any, keys: list[Any], frames: list[tuple[str, int, str]]) -> None:
        self._sent.append((now_ns(), expr, keys, frames))

    def has_more(self) -> bool:
        """Return whether the layers of some graph are not described yet."""
        return bool(self._graphs)

    def detach(self) -> None:
        """Give the client its own method back."""
        unwatch_submissions(self._client, self._taker)

    def rows(self) -> Iterable[Batch]:
        """Return the submissions since the last call."""
        rows = []
        while self._sent:
            time, expr, keys, frames = self._sent.popleft()
            if not keys:
                continue
            first = wire_key(keys[0])
            row = {
                "time": time,
                "client": self._client.id,
                "first_key": first,
                "n_keys": len(keys),
                "collection": type(expr).__name__,
            }
            if frames:
                file, line, function = frames[0]
                row |= {"file": file, "line": line, "function": function}
                if self._code:
                    row["code"] = (
                        clip(redact_text(linecache.getline(file, line).strip()), 1000) or None
                    )
            rows.append(row)
            whose = {"time": time, "client": self._client.id, "first_key": first}
            self._graphs.append((whose, expr))
        if rows:
            yield Batch.of_rows("client_submissions", rows)

    def slow_rows(self) -> Iterable[Batch]:
        """Return the layers of graphs that there is time for."""
        until = monotonic() + _LAYER_SECONDS
        while self._graphs and monotonic() < until:
            whose, expr = self._graphs.popleft()
            layers = [{**whose, **layer} for layer in _layers(expr)]
            if layers:
                yield Batch.of_rows("graph_layers", layers)


_Taker = Callable[[Any, list[Any], list[tuple[str, int, str]]], None]


def watch_submissions(client: Any, taker: _Taker) -> _Taker:
    """Have a function called with each graph that a client sends; several may watch."""
    present = client.__dict__.get("_graph_to_futures")
    takers: list[_Taker] | None = getattr(present, "strata_takers", None)
    if takers is not None:
        takers.append(taker)
        return taker
    takers = [taker]
    original = client._graph_to_futures  # noqa: SLF001  the one place that all submissions pass

    def graph_to_futures(expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        futures = original(expr, keys, *args, **kwargs)
        sent, frames = list(futures), _user_frames()
        for take in takers:
            take(expr, sent, frames)
        return futures

    graph_to_futures.strata_takers = takers  # type: ignore[attr-defined]
    client._graph_to_futures = graph_to_futures  # noqa: SLF001
    return taker


def unwatch_submissions(client: Any, taker: _Taker) -> None:
    """Stop; the last to go gives the client its own method back."""
    present = client.__dict__.get("_graph_to_futures")
    takers: list[_Taker] = getattr(present, "strata_takers", [])
    if taker in takers:
        takers.remove(taker)
    if present is not None and not takers:
        del client._graph_to_futures  # noqa: SLF001


def _user_frames() -> list[tuple[str, int, str]]:
    """Return the innermost frame of the user's own code: file, line, function."""
    frame = sys._getframe(2)  # noqa: SLF001  a full traceback would cost a hundred times as much
    fallback: list[tuple[str, int, str]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USER):
            here = (file, frame.f_lineno, frame.f_code.co_name)
            if "site-packages" not in file and not file.startswith((_STDLIB, "<frozen")):
                return [here]
            fallback = fallback or [here]
        frame = frame.f_back  # type: ignore[assignment]
    return fallback


def _layers(expr: Any) -> Iterable[dict[str, Any]]:
    """Yield the layers of what was handed to Dask, without making any task.

    A `HighLevelGraph` shows its layers, also inside of Dask's expressions that wrap one; any
    other expression shows its operands. Anything else is one graph without layers.
    """
    if isinstance(getattr(expr, "layers", None), dict):
        yield from _graph_layers(expr)
        return
    walk = getattr(expr, "walk", None)
    if walk is None or _is_plain_graph(expr):
        return
    for node in walk():
        inner = _wrapped(node)
        if isinstance(getattr(inner, "layers", None), dict):
            yield from _graph_layers(inner)
        elif not type(node).__name__.startswith("_"):  # with one, it only holds others together
            name = getattr(node, "_name", None)
            if isinstance(name, str):
                yield {
                    "layer": name,
                    "type": type(node).__name__,
                    "dependencies": json_text(
                        [getattr(d, "_name", None) for d in node.dependencies()]
                    ),
                }


def _wrapped(node: Any) -> Any:
    """Return the graph that an expression of Dask's was made of, if it was."""
    return node.operand("dsk") if "dsk" in getattr(node, "_parameters", ()) else None


def _is_plain_graph(expr: Any) -> bool:
    return type(_wrapped(expr)) is dict


def _graph_layers(graph: Any) -> Iterable[dict[str, Any]]:
    dependencies = getattr(graph, "dependencies", {})
    for name, layer in graph.layers.items():
        materialized = getattr(layer, "is_materialized", lambda: True)()
        annotations = getattr(layer, "annotations", None)
        yield {
            "layer": name if isinstance(name, str) else safe_repr(name, 1000),
            "type": type(layer).__name__,
            "n_tasks": len(layer) if materialized else None,
            "dependencies": json_text(sorted(map(str, dependencies.get(name, ())))),
            "annotations": json_text(annotations) if annotations else None,
        }
