"""Submissions of a client: the user's line of code, expression and layers."""

from __future__ import annotations

import linecache
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple

from dask_strata.recorder.environment.notebook import cell_of, ipython_shell, is_cell
from dask_strata.recorder.graphs.expressions import expression_of, expression_text
from dask_strata.recorder.graphs.layers import WRITTEN, layers_of, sent_expressions
from dask_strata.recorder.graphs.sent_sizes import SentSizes
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.redact import redact_path, redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.sampling.frames import NOT_USER, is_users
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch

#: Longest recorded line and cell, in characters.
_LINE, _CELL = 1_000, 20_000

#: Names of Dask's functions through which collections reach the scheduler.
_SUBMITTING = frozenset({"compute", "persist", "get"})

#: Time per call, in seconds, for describing graphs; the rest waits for the next flush.
_GRAPH_SECONDS = 0.03

#: Layers between two looks at the time.
_LAYERS = 200


class Origin(NamedTuple):
    """Place and collections of a submission, as found on the stack of the client's thread.

    Attributes
    ----------
    frames : list
        At most one (file, line, function): the user's frame.
    written : list
        The collections that the user submitted; empty if the user submitted a graph.
    optimised : list
        The collections that Dask made of these to submit them; empty if it submitted these.
    outermost : str or None
        File of the outermost frame of a notebook's cell, in a process with IPython.
    """

    frames: list[tuple[str, int, str]]
    written: list[Any]
    optimised: list[Any]
    outermost: str | None = None


class Sending(NamedTuple):
    """When the client began to make the message of a submission, and the bytes of its graph."""

    began: int | None
    sent_bytes: int | None


class SubmissionSource(Source):
    """Make batches of ``client_submissions``, ``graph_layers`` and ``client_graphs``.

    Parameters
    ----------
    client : distributed.Client
        The client.
    code : bool
        Whether to record the text of the user's line and of the notebook's cell.
    """

    def __init__(self, client: Any, *, code: bool) -> None:
        self._client, self._code = client, code
        self._sent: deque[tuple[int, Any, list[Any], Origin, Sending]] = deque()
        self._graphs: deque[_Graph] = deque()
        self._cell = "", ""
        self._note = watch_submissions(client, self._queue)

    def _queue(self, expr: Any, keys: list[Any], origin: Origin, sending: Sending) -> None:
        self._sent.append((now_ns(), expr, keys, origin, sending))

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
            time, expr, keys, origin, sending = self._sent.popleft()
            if not keys:
                continue
            first = wire_key(keys[0])
            row = {
                "time": time,
                "client": self._client.id,
                "first_key": first,
                "n_keys": len(keys),
                "collection": type(origin.written[0] if origin.written else expr).__name__,
                **sending._asdict(),
            }
            rows.append(row | self._written_at(origin))
            place = {"time": time, "client": self._client.id, "first_key": first}
            self._graphs.append(_Graph(place, expr, origin, code=self._code))
        if rows:
            yield Batch.of_rows("client_submissions", rows)

    def _written_at(self, origin: Origin) -> dict[str, Any]:
        """Return the user's line, and the cell of a notebook that was running."""
        if not origin.frames:
            return {}
        file, line, function = origin.frames[0]
        facts: dict[str, Any] = {"file": redact_path(file), "line": line, "function": function}
        if self._code:
            facts["code"] = clip(redact_text(linecache.getline(file, line).strip()), _LINE) or None
        cell = None if origin.outermost is None else cell_of(origin.outermost)
        if cell is not None:
            facts["cell"] = cell.number
            if self._code:
                facts["cell_code"] = self._redacted(cell.text)
        return facts

    def _redacted(self, cell: str) -> str:
        """Return the text of a cell as recorded; a cell may submit many graphs in a loop."""
        if self._cell[0] != cell:
            self._cell = cell, clip(redact_text(cell.strip()), _CELL)
        return self._cell[1]

    def slow_rows(self) -> Iterable[Batch]:
        """Return rows of graphs, until the time for one call is over."""
        until = monotonic() + _GRAPH_SECONDS
        while self._graphs and monotonic() < until:
            graph = self._graphs[0]
            rows = list(islice(graph.layers, _LAYERS))
            if rows:
                yield Batch.of_rows("graph_layers", rows)
                continue
            self._graphs.popleft()
            described = graph.describe()
            if described is not None:
                yield Batch.of_rows("client_graphs", [described])


class _Graph:
    """The graph of one submission, whose layers become rows in several steps."""

    def __init__(self, place: dict[str, Any], sent: Any, origin: Origin, *, code: bool) -> None:
        self._place, self._sent, self._origin, self._code = place, sent, origin, code
        self._n_layers = 0
        self._n_tasks: int | None = 0
        self.layers = self._layers()

    def _layers(self) -> Iterator[dict[str, Any]]:
        for layer in layers_of(self._sent, self._origin.written, self._origin.optimised):
            if layer["stage"] == WRITTEN:
                self._n_layers += 1
                n = layer["n_tasks"]
                self._n_tasks = None if n is None or self._n_tasks is None else self._n_tasks + n
            yield {**self._place, **layer}

    def describe(self) -> dict[str, Any] | None:
        """Return the row of the whole graph; None for single tasks, which have no layers."""
        if not self._n_layers:
            return None
        written = [e for e in map(expression_of, self._origin.written) if e is not None]
        sent = sent_expressions(self._sent, self._origin.optimised) if written else []
        return {
            **self._place,
            "n_layers": self._n_layers,
            "n_tasks": self._n_tasks,
            "expression": expression_text(written) if self._code else None,
            "sent_expression": expression_text(sent) if self._code else None,
        }


_Note = Callable[[Any, list[Any], Origin, Sending], None]


def watch_submissions(client: Any, note: _Note) -> _Note:
    """Call a function after each submission of a client; several functions may watch one client.

    Parameters
    ----------
    client : distributed.Client
        The client; its private method for submissions is replaced.
    note : callable
        Called with the graph, the list of keys of the futures, the `Origin`, and the
        `Sending`.

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
    sizes = SentSizes(client)

    def graph_to_futures(expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        began = now_ns()
        futures = original(expr, keys, *args, **kwargs)
        sent, origin = list(futures), _origin()
        sending = Sending(began, sizes.take())
        for each in notes:
            each(expr, sent, origin, sending)
        return futures

    graph_to_futures.strata_notes = notes  # type: ignore[attr-defined]
    graph_to_futures.strata_sizes = sizes  # type: ignore[attr-defined]
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
        present.strata_sizes.restore()


def _origin() -> Origin:
    """Return the user's frame and collections of a submission.

    The frame is the innermost one of the user's own code, or else the innermost one that is not
    Dask's. The collections are arguments of Dask's functions that lead to the submission. Of two
    such functions, the outer one has what the user wrote: Dask may optimise it between them.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  a full traceback takes a hundred times as long
    frames: list[tuple[str, int, str]] = []
    written: list[Any] = []
    optimised: list[Any] = []
    submitting = True
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if not file.startswith(NOT_USER):
            submitting = False
            found = (file, frame.f_lineno, code.co_name)
            if is_users(file):
                frames = [found]
                break
            if not file.startswith("<frozen"):
                frames = frames or [found]
        elif submitting and code.co_name in _SUBMITTING:
            written = _collections(frame.f_locals) or written
            optimised = optimised or written
        else:
            submitting = False
        frame = frame.f_back
    same = len(written) == len(optimised) and all(map(operator.is_, written, optimised))
    return Origin(frames, written, [] if same else optimised, _outermost(frame))


def _outermost(frame: FrameType | None) -> str | None:
    """Return the file of the outermost frame of a cell; None in a process without IPython.

    It is the running cell, which may call functions of other cells and of modules. Frames outside
    it are of the program that started IPython.
    """
    shell = ipython_shell()
    if shell is None:
        return None
    outermost = None
    while frame is not None:
        if is_cell(shell, frame.f_code.co_filename):
            outermost = frame.f_code.co_filename
        frame = frame.f_back
    return outermost


def _collections(names: Mapping[str, Any]) -> list[Any]:
    """Return the collections among the local names of a function of Dask."""
    for name in ("variables", "collections"):
        found = names.get(name)
        if found and isinstance(found, (list, tuple)):
            return list(found)
    this = names.get("self")
    return [this] if hasattr(type(this), "__dask_graph__") else []
