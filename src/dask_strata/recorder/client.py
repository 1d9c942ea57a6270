"""A client's recorder: the script, and the user's line behind each submission."""

from __future__ import annotations

import linecache
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Any

import dask
import distributed

from dask_strata.config import read_settings, understood
from dask_strata.recorder.engine import Engine, now_ns
from dask_strata.recorder.profiling import profile
from dask_strata.recorder.redact import redact_text
from dask_strata.recorder.relay import sender
from dask_strata.recorder.script import script_facts
from dask_strata.recorder.statics import add_statics
from dask_strata.recorder.text import clip, json_text, safe_repr
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

#: Frames from these folders are Dask's or ours, not the user's.
_NOT_USER = tuple(
    os.path.dirname(os.path.abspath(module.__file__)) + os.sep
    for module in (dask, distributed, sys.modules["dask_strata"])
    if module.__file__
)
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep

#: For how long the layers of graphs are looked at before what else was seen is handed over.
_LAYER_SECONDS = 0.03


class ClientRecorder:
    """Records one client; made and closed on its event loop.

    Parameters
    ----------
    client : distributed.Client
        The client, connected to a scheduler that is being recorded.
    spec : dict
        As the scheduler's recorder announced it: run, folder, settings.
    """

    def __init__(self, client: Any, spec: dict[str, Any]) -> None:
        self._client = client
        operation = f"dask-strata-{spec['run']}"

        send = sender(client.scheduler, operation, client.loop)
        settings = read_settings(understood(spec["settings"])[0])
        self._engine = engine = Engine("client", spec["run"], Path(spec["folder"]), settings, send)
        self._sent: deque[tuple[int, Any, list[Any], list[tuple[str, int, str]]]] = deque()
        self._graphs: deque[tuple[dict[str, Any], Any]] = deque()
        self._taker = watch_submissions(client, self._take)
        engine.sources.append(self._submissions)
        engine.slow_sources.append(self._layer_rows)
        engine.unfinished.append(lambda: bool(self._graphs))
        engine.on_finish.append(lambda: unwatch_submissions(client, self._taker))
        engine.ended = lambda: "closed" if client.status == "closed" else None
        engine.facts.append(lambda: self._facts(spec))
        engine.start(address=client.id)
        profile(engine)

    def _facts(self, spec: dict[str, Any]) -> None:
        add_statics(self._engine, spec)
        # Last, as a repository's git may take its time.
        for name, value in script_facts(code=self._engine.settings.code):
            self._engine.add("script", name=name, value=value)

    def _take(self, expr: Any, keys: list[Any], frames: list[tuple[str, int, str]]) -> None:
        self._sent.append((now_ns(), expr, keys, frames))

    async def close(self, reason: str = "closed") -> None:
        """Stop and write what is left."""
        await self._engine.finish_and_wait(reason)

    def leave(self, reason: str = "closed") -> None:
        """Do the same where there is no event loop any more."""
        self._engine.finish(reason)

    def _submissions(self) -> Iterable[Batch]:
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
                if self._engine.settings.code:
                    row["code"] = (
                        clip(redact_text(linecache.getline(file, line).strip()), 1000) or None
                    )
            rows.append(row)
            whose = {"time": time, "client": self._client.id, "first_key": first}
            self._graphs.append((whose, expr))
        if rows:
            yield Batch.of_rows("client_submissions", rows)

    def _layer_rows(self) -> Iterable[Batch]:
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
