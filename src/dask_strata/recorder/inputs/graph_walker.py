"""Walk the definitions of tasks (`dask._task_spec`) and collect the inputs that they name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dask_strata.recorder.inputs.claims import row_of
from dask_strata.recorder.inputs.extractors.call import LATER, Call, peek
from dask_strata.recorder.inputs.extractors.paths import text_path
from dask_strata.recorder.inputs.kinds import (
    CONTAINER,
    DATA,
    EXTRA,
    KNOWN,
    MAPPING,
    PARTIAL,
    PATH,
    REF,
    SKIP,
    SUBGRAPH,
    TASK,
    TEXT,
    WRITER,
    Callee,
    Kinds,
)
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.text import clip

#: Bound on the depth of nested calls and containers.
MAX_DEPTH = 50

#: Bound on the visited parts of one task's definition.
MAX_PARTS = 2000

#: Number of items, such as numbers, that name no input, after which a container is skipped.
_PROBE = 20

#: Bound on a chain of references.
_CHAIN = 20

#: Bound on the cached texts of one submission.
_REMEMBERED = 50_000


class GraphWalker:
    """Find the inputs that the definitions of one submission name.

    The walk calls no function of a definition and bounds its own work. Errors are counted, never
    raised.

    Parameters
    ----------
    own : mapping
        The definitions of the submission, by key.
    known : mapping
        The scheduler's tasks, for data that was submitted earlier.

    Attributes
    ----------
    failures : Counter
        Number of failures by reason.

    Examples
    --------
    >>> from dask._task_spec import Task
    >>> walker = GraphWalker({}, {})
    >>> walker.claims(Task("key", print, "/data/x.csv", 7))
    [{'uri': '/data/x.csv', 'extractor': 'argument'}]
    """

    def __init__(self, own: Mapping[Any, Any], known: Mapping[Any, Any]) -> None:
        self.failures: Counter[str] = Counter()
        self._kinds = Kinds(self._fail)
        self._kind = self._kinds.kind
        self._callees = self._kinds.callees
        self._new_callee = self._kinds.callee
        self._memo: dict[Any, Any] = {}
        self._shared: dict[Any, Any] = {}
        self._texts: dict[Any, str | None] = {}
        self._data: dict[int, tuple[Any, list[dict[str, Any]]]] = {}
        self._own: dict[Any, Any] = {}
        self._known = known
        self._rows: dict[Any, dict[str, Any]] = {}
        self._left = MAX_PARTS
        self._cut = False
        self.add(own)

    def add(self, own: Mapping[Any, Any]) -> None:
        """Add definitions of the submission: tasks may refer to data among them."""
        self._own.update((k, s) for k, s in own.items() if self._kind(s) in (DATA, REF))

    def claims(self, spec: Any) -> list[dict[str, Any]]:
        """Return the rows for the definition of one task; never raises."""
        if self._kind(spec) is not TASK:
            return []
        self._left, self._cut = MAX_PARTS, False
        try:
            self._task(spec, {}, 0)
        except Exception as error:  # noqa: BLE001  definitions may hold anything
            self._fail("a definition", error)
        if not self._rows:
            return []
        rows = list(self._rows.values())
        self._rows = {}
        if self._cut:
            self.failures["a definition is too large to search completely"] += 1
        return rows

    # Walking.

    def _task(self, task: Any, env: dict[Any, Any], depth: int) -> None:
        if depth > MAX_DEPTH or self._left <= 0:
            self._cut = True
            return
        self._left -= 1
        function = task.func
        callee = self._callees.get(id(function)) or self._new_callee(function)
        role = callee.role
        if role == SUBGRAPH:
            self._subgraph(task, env, depth)
            return
        if role == EXTRA:
            callee = self._called_with_extra(task, env, depth) or callee
            role = callee.role
        if role == KNOWN and self._extract(callee, self._call(callee, task, env, depth)):
            return
        kinds = self._kinds.by_type
        only_tasks = role == WRITER
        if callee.extra and not only_tasks:
            self._each(callee.extra, env, depth)
        for values in (task.args, task.kwargs.values()) if task.kwargs else (task.args,):
            for value in values:
                kind = kinds.get(id(type(value)))
                if kind is SKIP:
                    continue
                if kind is None:
                    kind = self._kinds.kind_of_type(type(value))
                if not only_tasks or kind is TASK:
                    self._visit(value, kind, env, depth)

    def _subgraph(self, task: Any, env: dict[Any, Any], depth: int) -> None:
        inner, _, names, *values = task.args
        if self._kind(inner) is DATA:
            inner = inner.value
        within = {**env, **inner}
        for name, value in zip(names, values, strict=False):
            kind = self._kind(value)
            if kind is REF:
                node = self._follow(value, env)
                within[name] = value if node is None else node
                continue
            within[name] = value
            if kind is TASK:
                self._task(value, env, depth + 1)
        for node in inner.values():
            if self._kind(node) is TASK:
                self._task(node, within, depth + 1)

    def _each(self, values: Iterable[Any], env: dict[Any, Any], depth: int) -> None:
        only_skipped = True
        for number, value in enumerate(values):
            kind = self._kind(value)
            if kind is SKIP:
                if only_skipped and number > _PROBE:
                    return
                continue
            only_skipped = False
            if self._left <= 0:
                self._cut = True
                return
            self._visit(value, kind, env, depth)

    def _visit(self, value: Any, kind: Any, env: dict[Any, Any], depth: int) -> None:
        if self._left <= 0 or depth > MAX_DEPTH:
            self._cut = True
            return
        self._left -= 1
        if kind is TEXT:
            self._text(value)
        elif kind is REF:
            node = self._follow(value, env)
            if node is not None and self._kind(node) is DATA:
                self._referred(node, depth)
        elif kind is TASK:
            self._task(value, env, depth + 1)
        elif kind is DATA:
            self._visit(value.value, self._kind(value.value), env, depth + 1)
        elif kind is MAPPING:
            self._each(dict.values(value), env, depth + 1)
        elif kind is PARTIAL:
            self._each((*value.args, *value.keywords.values()), env, depth + 1)
        elif kind is PATH:
            self._path(value)
        elif kind.__class__ is Callee:
            self._extract(kind, value)
        elif kind is not SKIP:
            self._each(kind(value), env, depth + 1)

    def _referred(self, node: Any, depth: int) -> None:
        """Search data once, even if several tasks refer to it."""
        cached = self._data.get(id(node))
        if cached is None:
            before, self._rows = self._rows, {}
            self._visit(node.value, self._kind(node.value), {}, depth + 1)
            cached = self._data[id(node)] = (node, list(self._rows.values()))
            self._rows = before
        for row in cached[1]:
            self._put(row)

    def _follow(self, ref: Any, env: dict[Any, Any]) -> Any:
        """Return the node at the end of a reference: data, a task of the same subgraph, or None."""
        for _ in range(_CHAIN):
            key = ref.key if type(ref).__name__ != "Alias" else ref.target
            node = env.get(key)
            inside = node is not None and node is not ref
            if not inside:
                node = self._own.get(key)
                if node is None:
                    task = self._known.get(key)
                    node = None if task is None else peek(task, "run_spec")
            kind = self._kind(node)
            if kind is not REF:
                return node if kind is DATA or (inside and kind is TASK) else None
            if node is ref:
                return None
            ref = node
        return None

    # Making calls for extractors.

    def _call(self, callee: Callee, task: Any, env: dict[Any, Any], depth: int) -> Call:
        args = (*callee.args, *[self._value(value, env, depth) for value in task.args])
        kwargs = dict(callee.kwargs)
        for name, value in task.kwargs.items():
            kwargs[name] = self._value(value, env, depth)
        return Call(callee.name, callee.function, args, kwargs, self._shared)

    def _value(self, value: Any, env: dict[Any, Any], depth: int) -> Any:
        kind = self._kind(value)
        if kind is DATA:
            return value.value
        if kind is REF:
            node = self._follow(value, env)
            if node is None:
                return LATER
            return self._value(node, env, depth + 1) if depth < MAX_DEPTH else LATER
        if kind is not TASK:
            return value
        if depth >= MAX_DEPTH or self._left <= 0:
            return LATER
        self._left -= 1
        callee = self._callees.get(id(value.func)) or self._new_callee(value.func)
        if callee.role != CONTAINER:
            return self._call(callee, value, env, depth + 1)
        values = [self._value(part, env, depth + 1) for part in value.args]
        make = value.kwargs.get("constructor") or value.kwargs.get("typ")
        if type(value).__name__ == "Dict":
            return dict(zip(values[::2], values[1::2], strict=False))
        return tuple(values) if make is tuple else values

    def _called_with_extra(self, task: Any, env: dict[Any, Any], depth: int) -> Callee | None:
        """Search a call through `_pass_extra_kwargs`, by which map_blocks calls a function.

        Return None if no extractor fits the function. Otherwise return a callee whose arguments are
        searched or not, depending on whether the extractor has found an input.
        """
        function, names, *args = [self._value(value, env, depth) for value in task.args]
        callee = self._callees.get(id(function)) or self._new_callee(function)
        if callee.extractor is None:
            return None
        extra = dict(zip(names, args, strict=False))
        kwargs = {k: self._value(v, env, depth) for k, v in task.kwargs.items()}
        rest = tuple(args[len(names) :])
        call = Call(callee.name, callee.function, rest, {**extra, **kwargs}, self._shared)
        found = self._extract(callee, call)
        return Callee(callee.name, None, WRITER) if found else None

    # Collecting rows.

    def _extract(self, callee: Callee, value: Any) -> bool:
        """Call an extractor with a call or object; return whether it found an input."""
        extractor = callee.extractor
        before = len(self._rows)
        found = False
        try:
            for claim in itertools.islice(extractor(value), MAX_PARTS):  # type: ignore[misc]
                found = True
                self._put(row_of(claim, callee.name, self._memo))
        except BaseException as error:  # noqa: BLE001  a user's extractor may even raise SystemExit
            self._fail(f"the extractor for {callee.name}", error)
        return found or len(self._rows) > before

    def _text(self, value: Any) -> None:
        texts = self._texts
        if type(value) is not str:  # a subclass may define its own comparison
            value = str.__str__(value) if isinstance(value, str) else b"".join([value])
        if value in texts:
            path = texts[value]
        else:
            if len(texts) > _REMEMBERED:
                texts.clear()
            path = texts[value] = text_path(value)
        if path is not None:
            self._put(row_of({"uri": path}, "argument", self._memo))

    def _path(self, value: Any) -> None:
        try:
            path = text_path(value)
        except BaseException as error:  # noqa: BLE001  a user's __fspath__ may do anything
            self._fail("a path", error)
            return
        if path:
            self._put(row_of({"uri": path}, "argument", self._memo))

    def _put(self, row: dict[str, Any]) -> None:
        get = row.get
        location = row["uri"], get("dataset"), get("tree")
        part = (*location, get("first"), get("last"), get("selection"))
        present = self._rows.get(part)
        self._rows[part] = row if present is None else {**row, **present}

    def _fail(self, subject: str, error: BaseException) -> None:
        try:
            message = redact_text(clip(str(error), 300))
        except Exception:  # noqa: BLE001  a user's error may do anything
            message = ""
        self.failures[f"{subject}: {type(error).__name__}: {message}"] += 1
