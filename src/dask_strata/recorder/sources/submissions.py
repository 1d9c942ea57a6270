"""Submissions of a client: the user's line of code, and the layers of the graph."""

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


#: Folders of Dask and dask-strata, whose frames are not the user's.
_NOT_USER = (
    _folder_of(dask.__file__, 1),
    _folder_of(distributed.__file__, 1),
    _folder_of(__file__, 3),
)
_STDLIB = _folder_of(os.__file__, 1)

#: Time per call, in seconds, for describing layers; the rest waits for the next flush.
_LAYER_SECONDS = 0.03


class SubmissionSource(Source):
    """Make batches of ``client_submissions`` and ``graph_layers``.

    Parameters
    ----------
    client : distributed.Client
        The client.
    code : bool
        Whether to record the text of the user's line.
    """

    def __init__(self, client: Any, *, code: bool) -> None:
        self._client, self._code = client, code
        self._sent: deque[tuple[int, Any, list[Any], list[tuple[str, int, str]]]] = deque()
        self._graphs: deque[tuple[dict[str, Any], Any]] = deque()
        self._note = watch_submissions(client, self._queue)

    def _queue(self, expr: Any, keys: list[Any], frames: list[tuple[str, int, str]]) -> None:
        self._sent.append((now_ns(), expr, keys, frames))

    def has_more(self) -> bool:
        """Return whether a graph has layers that have no rows yet."""
        return bool(self._graphs)

    def detach(self) -> None:
        """Restore the client's own method, unless another recording still watches it."""
        unwatch_submissions(self._client, self._note)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the submissions since the last call."""
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
            origin = {"time": time, "client": self._client.id, "first_key": first}
            self._graphs.append((origin, expr))
        if rows:
            yield Batch.of_rows("client_submissions", rows)

    def slow_rows(self) -> Iterable[Batch]:
        """Return rows of layers, until the time for one call is over."""
        until = monotonic() + _LAYER_SECONDS
        while self._graphs and monotonic() < until:
            origin, expr = self._graphs.popleft()
            layers = [{**origin, **layer} for layer in _layers(expr)]
            if layers:
                yield Batch.of_rows("graph_layers", layers)


_Note = Callable[[Any, list[Any], list[tuple[str, int, str]]], None]


def watch_submissions(client: Any, note: _Note) -> _Note:
    """Call a function after each submission of a client; several functions may watch one client.

    Parameters
    ----------
    client : distributed.Client
        The client; its private method for submissions is replaced.
    note : callable
        Called with the graph, the list of keys of the futures, and the user's frame: a list with
        at most one (file, line, function).

    Returns
    -------
    callable
        The same function, for `unwatch_submissions`.
    """
    present = client.__dict__.get("_graph_to_futures")
    notes: list[_Note] | None = getattr(present, "strata_notes", None)
    if notes is not None:
        notes.append(note)
        return note
    notes = [note]
    original = client._graph_to_futures  # noqa: SLF001  all submissions call this method

    def graph_to_futures(expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        futures = original(expr, keys, *args, **kwargs)
        sent, frames = list(futures), _user_frames()
        for each in notes:
            each(expr, sent, frames)
        return futures

    graph_to_futures.strata_notes = notes  # type: ignore[attr-defined]
    client._graph_to_futures = graph_to_futures  # noqa: SLF001  as above
    return note


def unwatch_submissions(client: Any, note: _Note) -> None:
    """Undo `watch_submissions`; after the last function, restore the client's own method.

    Parameters
    ----------
    client : distributed.Client
        The client.
    note : callable
        The function that `watch_submissions` returned.
    """
    present = client.__dict__.get("_graph_to_futures")
    notes: list[_Note] = getattr(present, "strata_notes", [])
    if note in notes:
        notes.remove(note)
    if present is not None and not notes:
        del client._graph_to_futures  # noqa: SLF001  as above


def _user_frames() -> list[tuple[str, int, str]]:
    """Return (file, line, function) of the innermost frame of the user's own code.

    Without one, return the innermost frame that is not Dask's, if there is any.
    """
    frame = sys._getframe(2)  # noqa: SLF001  a full traceback takes a hundred times as long
    fallback: list[tuple[str, int, str]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USER):
            found = (file, frame.f_lineno, frame.f_code.co_name)
            if "site-packages" not in file and not file.startswith((_STDLIB, "<frozen")):
                return [found]
            fallback = fallback or [found]
        frame = frame.f_back  # type: ignore[assignment]
    return fallback


def _layers(expr: Any) -> Iterable[dict[str, Any]]:
    """Yield the layers of a submitted expression or graph, without materializing any task.

    A `HighLevelGraph` has layers, also inside Dask's expressions that wrap one. Of any other
    expression, the operands are the layers. A plain graph has none.
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
        elif not type(node).__name__.startswith("_"):  # an underscore marks a mere container
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
    """Return the graph that one of Dask's expressions wraps; None if it wraps none."""
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
