"""Graphs as they were handed to the scheduler: tasks, dependencies, definitions."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dask_strata.recorder.inputs.source import Definitions, InputSource
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, json_text, safe_repr, wire_keys
from dask_strata.store.frames import Batch


def function_name(spec: Any, known: dict[int, str]) -> str | None:
    """Return the name of the function that a task's definition calls; None for data.

    ``known`` remembers names by the identity of functions, for as long as these live.
    """
    function = getattr(spec, "func", None)
    if function is None:
        return None
    name = known.get(id(function))
    if name is None:
        name = known[id(function)] = _describe(function)
    return name


def _describe(function: Any) -> str:
    for _ in range(10):
        inner = getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        name = type(function).__qualname__
        module = type(function).__module__
    return clip(f"{module}.{name}" if isinstance(module, str) else name, 500)


def definition_bytes(spec: Any) -> int | None:
    """Estimate the memory of a task's definition from its own arguments.

    Containers are looked into once: this is done for each task of a graph.
    """
    if spec is None:
        return None
    size = object.__sizeof__(spec)  # Dask's own __sizeof__ counts the arguments too
    arguments = getattr(spec, "args", None)
    parts = list(arguments) if isinstance(arguments, tuple) else []
    keywords = getattr(spec, "kwargs", None)
    if isinstance(keywords, dict):
        parts.extend(keywords.values())
    if hasattr(spec, "value"):
        parts.append(spec.value)
    for part in parts:
        size += _size(part)
        if isinstance(part, (list, tuple, set)):
            size += sum(map(_size, part))
        elif isinstance(part, dict):
            size += sum(map(_size, part.values()))
    return size


#: No definition is larger; what claims to be is wrong.
_LARGEST = 1 << 50

#: Types whose values have no size beyond what the interpreter says.
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), tuple, list, dict, set})


def _size(value: Any) -> int:
    if type(value) in _PLAIN:
        return sys.getsizeof(value)
    try:
        nbytes = getattr(value, "nbytes", None)
        size = nbytes if isinstance(nbytes, int) else sys.getsizeof(value, 64)
        return min(max(int(size), 0), _LARGEST)
    except Exception:  # noqa: BLE001  a user's nbytes and __sizeof__ may do anything
        return 64


class _Graph:
    """One submission, and how much of it was described."""

    def __init__(
        self,
        facts: dict[str, Any],
        rows: list[tuple[Any, Any]],
        requested: frozenset[Any],
        known: Mapping[Any, Any],
        *,
        inputs: bool,
    ) -> None:
        self.submission: str = facts["submission"]
        #: Of what was described, if its inputs are asked for.
        self.definitions = Definitions(facts["submission"], known) if inputs else None
        self._rows, self._requested = rows, requested
        self._position = 0
        self._functions: dict[int, str] = {}

    @property
    def left(self) -> int:
        """How many tasks were not described yet."""
        return len(self._rows) - self._position

    def describe(self, n: int) -> Iterator[Batch]:
        """Yield so many tasks more, with their dependencies."""
        rows = self._rows[self._position : self._position + n]
        self._position += len(rows)  # also if that fails, or it would fail for ever
        if self.definitions is not None:
            self.definitions.take({ts.key: spec for ts, spec in rows})
        yield self._tasks(rows)
        edges = [
            (ts.key, dependency)
            for ts, spec in rows
            if spec is not None
            for dependency in spec.dependencies
        ]
        if edges:
            tasks, dependencies = zip(*edges, strict=True)
            yield Batch(
                "graph_edges",
                len(edges),
                {
                    "submission": self.submission,
                    "key": wire_keys(tasks),
                    "dependency": wire_keys(dependencies),
                },
            )

    def _tasks(self, rows: list[tuple[Any, Any]]) -> Batch:
        tasks, specs = zip(*rows, strict=True)
        keys = [ts.key for ts in tasks]
        return Batch(
            "graph_tasks",
            len(rows),
            {
                "submission": self.submission,
                "key": wire_keys(keys),
                "prefix": [ts.prefix.name for ts in tasks],
                "group": [_group_name(ts.group) for ts in tasks],
                "function": [function_name(spec, self._functions) for spec in specs],
                "requested": [key in self._requested for key in keys],
                "priority": [None if ts.priority is None else str(ts.priority) for ts in tasks],
                "annotations": [
                    json_text(ts.annotations) if ts.annotations else None for ts in tasks
                ],
                "definition_bytes": [definition_bytes(spec) for spec in specs],
            },
        )


#: For how long graphs are described before what else was seen is handed over, how many tasks
#: at most, and how many before others may have the interpreter.
_SECONDS, MOST_TASKS, _STEP = 0.03, 10_000, 500


class GraphSource(Source):
    """Makes batches of `submissions`, `graph_tasks`, `graph_edges` and `claimed_inputs`.

    The event loop only collects references; names, sizes and inputs are worked out later, on
    the recorder's thread, and a part of a large graph at a time.

    Parameters
    ----------
    run : str
        Id of the run.
    code : bool
        Whether the user's source lines are recorded.
    inputs : bool
        Whether it is recorded what definitions say that tasks read.
    """

    def __init__(self, run: str, *, code: bool, inputs: bool = False) -> None:
        self._run = run
        self._code = code
        self._inputs = InputSource() if inputs else None
        self._new: deque[
            tuple[dict[str, Any], list[tuple[Any, Any]], frozenset[Any], Mapping[Any, Any]]
        ] = deque()
        self._begun: deque[_Graph] = deque()
        self._count = 0

    def submitted(
        self, scheduler: Any, client: str, tasks: Iterable[Any], keys: Any, stimulus_id: str | None
    ) -> None:
        """Take a submission; on the event loop, before any of its tasks moves."""
        # Definitions are taken now: the rest of a task's state outlives its being forgotten.
        known = scheduler.tasks
        rows = [(ts, ts.run_spec) for key in tasks if (ts := known.get(key)) is not None]
        self._count += 1
        computation = scheduler.computations[-1] if scheduler.computations else None
        facts = {
            "submission": f"{self._run}-{self._count}",
            "time": now_ns(),
            "client": client,
            "n_tasks": len(rows),
            "n_keys": len(keys),
            "stimulus_id": stimulus_id,
            "span": _span(scheduler, rows),
            "code": _code(computation) if self._code else None,
        }
        self._new.append((facts, rows, frozenset(keys), known))

    def end(self) -> None:
        """Leave nothing for a later call, if it does not take too long."""
        if self._inputs is not None:
            self._inputs.end()

    def has_more(self) -> bool:
        """Tell whether there is more than the next call may give."""
        inputs = self._inputs is not None and self._inputs.unfinished
        return bool(self._new or self._begun) or inputs

    def slow_rows(self) -> Iterator[Batch]:
        """Return the submissions since the last call, and what there is time for of their tasks."""
        if self._new:
            new = [self._new.popleft() for _ in range(len(self._new))]
            inputs = self._inputs is not None
            self._begun.extend(_Graph(*each, inputs=inputs) for each in new)
            yield Batch.of_rows("submissions", [facts for facts, *_ in new])
        until, room = time.monotonic() + _SECONDS, MOST_TASKS
        while self._begun and room > 0 and time.monotonic() < until:
            graph = self._begun[0]
            if graph.left:
                n = min(_STEP, room)
                room -= n
                yield from graph.describe(n)
                time.sleep(0)  # lets the event loop have the interpreter
            if not graph.left:
                self._begun.popleft()
                if self._inputs is not None and graph.definitions is not None:
                    self._inputs.add(graph.definitions)
        if self._inputs is not None and not self._begun:
            yield from self._inputs()


def _group_name(group: Any) -> str:
    name = group.name
    return name if isinstance(name, str) else str(name)


def _span(scheduler: Any, rows: list[tuple[Any, Any]]) -> str | None:
    spans = scheduler.extensions.get("spans")
    if spans is None or not rows:
        return None
    span = spans.spans.get(rows[0][0].group.span_id)
    return None if span is None else clip(json_text(list(span.name)), 1000)


def _code(computation: Any) -> str | None:
    if computation is None or not computation.code:
        return None
    frames = [frame for code in computation.code for frame in code]
    return (
        clip(
            json_text(
                [
                    {
                        "file": getattr(f, "filename", None),
                        "line": getattr(f, "lineno_frame", None),
                        "code": redact_text(clip(getattr(f, "code", None) or safe_repr(f), 10_000)),
                    }
                    for f in frames
                ]
            )
        )
        if frames
        else None
    )
