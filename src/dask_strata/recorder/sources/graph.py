"""Graphs as the scheduler receives them: submissions, tasks, dependencies, claimed inputs."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dask_strata.recorder.graphs.functions import FunctionNames
from dask_strata.recorder.graphs.own_tasks import OwnTasks
from dask_strata.recorder.graphs.present_tasks import PresentTasks
from dask_strata.recorder.graphs.spans import Spans
from dask_strata.recorder.inputs.source import Definitions, InputSource
from dask_strata.recorder.pipeline.engine import now_ns
from dask_strata.recorder.pipeline.redact import redact_json, redact_path, redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, json_text, safe_repr, wire_keys
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch


def definition_bytes(spec: Any) -> int | None:
    """Return an estimate of the memory of a task's definition in bytes, from its arguments.

    Count the items of a container, but not items of items: this runs for each task of a graph.
    """
    if spec is None:
        return None
    size = object.__sizeof__(spec)  # Dask's own __sizeof__ includes the arguments
    arguments = getattr(spec, "args", None)
    parts = list(arguments) if isinstance(arguments, tuple) else []
    keywords = getattr(spec, "kwargs", None)
    if isinstance(keywords, dict):
        parts.extend(keywords.values())
    if hasattr(spec, "value"):
        parts.append(spec.value)
    for part in parts:
        if type(part) in _ATOMS:
            size += sys.getsizeof(part)
            continue
        size += _size(part)
        if isinstance(part, (list, tuple, set)):
            size += sum(map(_size, part))
        elif isinstance(part, dict):
            size += sum(map(_size, part.values()))
    return size


#: Bound on a size in bytes; a user's `nbytes` beyond it is wrong.
_LARGEST = 1 << 50

#: Types without items whose size is the interpreter's own figure, and all such types.
_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})
_PLAIN = _ATOMS | {tuple, list, dict, set}


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
    """One submission, or the present tasks, which become rows in several steps."""

    def __init__(  # noqa: PLR0913
        self,
        submission: str | None,
        rows: list[tuple[Any, Any]],
        requested: frozenset[Any],
        known: Mapping[Any, Any],
        *,
        inputs: bool,
        spans: Spans,
    ) -> None:
        self._submission = Sparse() if submission is None else submission
        self._spans = spans
        #: Definitions of the tasks that have rows; None if inputs are not recorded.
        self.definitions = Definitions(submission, known) if inputs else None
        self._rows, self._requested = rows, requested
        self._position = 0
        self._functions = FunctionNames()

    @property
    def left(self) -> int:
        """Number of tasks that have no rows yet."""
        return len(self._rows) - self._position

    def describe(self, n: int) -> Iterator[Batch]:
        """Yield rows of the next n tasks and of their dependencies."""
        rows = self._rows[self._position : self._position + n]
        self._position += len(rows)  # first: a failure would repeat otherwise
        if self.definitions is not None:
            self.definitions.add({ts.key: spec for ts, spec in rows})
        tasks_of_rows = self._tasks(rows)
        yield from self._spans.rows()  # first: a task's span is on record with the task
        yield tasks_of_rows
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
                    "submission": self._submission,
                    "key": wire_keys(tasks),
                    "dependency": wire_keys(dependencies),
                },
            )

    def _tasks(self, rows: list[tuple[Any, Any]]) -> Batch:
        tasks, specs = zip(*rows, strict=True)
        keys = [ts.key for ts in tasks]
        groups = [ts.group for ts in tasks]
        named = [self._functions.of(spec) for spec in specs]
        return Batch(
            "graph_tasks",
            len(rows),
            {
                "submission": self._submission,
                "key": wire_keys(keys),
                "prefix": [ts.prefix.name for ts in tasks],
                "group": [_group_name(group) for group in groups],
                "function": [each.function for each in named],
                "functions": [each.functions for each in named],
                "fused_prefixes": [each.prefixes for each in named],
                "fused_layers": [each.layers for each in named],
                "requested": [key in self._requested for key in keys],
                "priority": [None if ts.priority is None else str(ts.priority) for ts in tasks],
                "annotations": [
                    redact_json(ts.annotations) if ts.annotations else None for ts in tasks
                ],
                "span": self._spans.of(groups),
                "definition_bytes": [definition_bytes(spec) for spec in specs],
            },
        )


class _PresentGraph(_Graph):
    """The tasks that were present when the recording began."""

    def __init__(self, present: PresentTasks, *, inputs: bool, spans: Spans) -> None:
        rows, requested = present.chosen(), present.requested()
        super().__init__(None, rows, requested, present.known, inputs=inputs, spans=spans)
        self._present = present

    def describe(self, n: int) -> Iterator[Batch]:
        """Yield rows of the next n tasks, also those about their submission."""
        position = self._position
        yield from super().describe(n)
        yield self._present.rows(position, self._rows[position : position + n])


#: Time per call, in seconds, for making the rows of graphs; the rest waits for the next flush.
_SECONDS = 0.03

#: Bound on the tasks per call.
MAX_TASKS = 10_000

#: Tasks after which the recorder's thread lets other threads run.
_STEP = 500


class GraphSource(Source):
    """Make batches of ``submissions``, ``graph_tasks``, ``graph_edges`` and ``claimed_inputs``.

    It also makes those of ``spans``, ``present_tasks`` and ``left_out_rows``.

    The event loop only collects references. The recorder's thread determines names, sizes and
    inputs later, and a part of a large graph at a time.

    Parameters
    ----------
    run : str
        Id of the run.
    spans : Spans
        The spans of the scheduler.
    code : bool
        Whether to record the user's source lines.
    inputs : bool, optional
        Whether to record the inputs that definitions name.
    own : OwnTasks, optional
        The client whose submissions alone are recorded.
    """

    def __init__(
        self,
        run: str,
        spans: Spans,
        *,
        code: bool,
        inputs: bool = False,
        own: OwnTasks | None = None,
    ) -> None:
        self._run, self._spans = run, spans
        self._code = code
        self._own = own
        self._present: PresentTasks | None = None
        self._inputs = InputSource() if inputs else None
        self._new: deque[
            tuple[dict[str, Any], list[tuple[Any, Any]], frozenset[Any], Mapping[Any, Any]]
        ] = deque()
        self._begun: deque[_Graph] = deque()
        self._count = 0

    def present(self, scheduler: Any) -> int:
        """Queue the present tasks; return how many exceed the bound. Call it on the event loop.

        Parameters
        ----------
        scheduler : distributed.Scheduler
            The scheduler.
        """
        present = PresentTasks(scheduler, self._own)
        if present:
            self._present = present
        return present.n_more

    def submitted(
        self, scheduler: Any, client: str, tasks: Sequence[Any], keys: Any, stimulus_id: str | None
    ) -> None:
        """Queue a submission; called on the event loop, before the first transition of its tasks.

        Parameters
        ----------
        scheduler : distributed.Scheduler
            The scheduler.
        client : str
            Id of the client.
        tasks : sequence
            Keys of the tasks.
        keys : collection
            Keys that the client requests.
        stimulus_id : str or None
            Dask's id of the submission.
        """
        own = self._own
        if own is not None and not own.submitted(client, tasks):
            return
        # Take the definitions now. The rest of a task's state can be read later, even when Dask has
        # forgotten the task.
        known = scheduler.tasks
        rows = [(ts, ts.run_spec) for key in tasks if (ts := known.get(key)) is not None]
        if own is not None:
            own.add(rows)
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

    def rows(self) -> Iterable[Batch]:
        """Return rows of tasks that became own, and of the numbers of rows left out."""
        return () if self._own is None else self._own.rows()

    def end(self) -> None:
        """Make the next call describe all inputs that are left, if that does not take too long.

        Call it on the event loop.
        """
        if self._own is not None:
            self._own.end()
        if self._inputs is not None:
            self._inputs.end()

    def has_more(self) -> bool:
        """Return whether a submission has tasks or inputs without rows."""
        inputs = self._inputs is not None and self._inputs.has_more()
        data = self._own is not None and self._own.has_data
        return bool(self._present or self._new or self._begun) or data or inputs

    def slow_rows(self) -> Iterator[Batch]:
        """Yield rows of the submissions since the last call, and of tasks until time is over."""
        inputs, spans = self._inputs is not None, self._spans
        if (present := self._present) is not None:
            self._present = None  # first: a failure would repeat otherwise
            self._begun.append(_PresentGraph(present, inputs=inputs, spans=spans))
        if self._own is not None and (data := self._own.data()):
            rows = [(ts, None) for ts in data]
            self._begun.append(_Graph(None, rows, frozenset(), {}, inputs=False, spans=spans))
        if self._new:
            new = [self._new.popleft() for _ in range(len(self._new))]
            self._begun.extend(
                _Graph(facts["submission"], rows, requested, known, inputs=inputs, spans=spans)
                for facts, rows, requested, known in new
            )
            yield Batch.of_rows("submissions", [facts for facts, *_ in new])
        until, room, in_a_row = time.monotonic() + _SECONDS, MAX_TASKS, 0
        while self._begun and room > 0 and time.monotonic() < until:
            graph = self._begun[0]
            if graph.left:
                n = min(_STEP, room, graph.left)
                room -= n
                in_a_row += n
                yield from graph.describe(n)
                if in_a_row >= _STEP:
                    in_a_row = 0
                    time.sleep(0)  # let the event loop have the interpreter
            if not graph.left:
                self._begun.popleft()
                if self._inputs is not None and graph.definitions is not None:
                    self._inputs.add(graph.definitions)
        if self._inputs is not None and not self._begun:
            yield from self._inputs.slow_rows()


def _group_name(group: Any) -> str:
    name = group.name
    return name if isinstance(name, str) else str(name)


def _span(scheduler: Any, rows: list[tuple[Any, Any]]) -> str | None:
    spans = scheduler.extensions.get("spans")
    if spans is None or not rows:
        return None
    span = spans.spans.get(rows[0][0].group.span_id)
    return None if span is None else clip(redact_json(list(span.name)), 1000)


def _redacted_file(frame: Any) -> str | None:
    file = getattr(frame, "filename", None)
    return None if file is None else redact_path(str(file))


def _code(computation: Any) -> str | None:
    if computation is None or not computation.code:
        return None
    frames = [frame for code in computation.code for frame in code]
    return (
        clip(
            json_text(
                [
                    {
                        "file": _redacted_file(f),
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
