"""Walks definitions of tasks (`dask._task_spec`) and collects the inputs that they name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dask_strata.recorder.inputs.claims import row_of
from dask_strata.recorder.inputs.extractors.call import LATER, Call, peek
from dask_strata.recorder.inputs.extractors.places import text_path
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

#: Calls and containers within one another that are looked into.
MAX_DEPTH = 50

#: Parts of one task's definition that are looked at.
MAX_PARTS = 2000

#: A container that begins with this many numbers and the like is not looked into further.
_PROBE = 20

#: References that are followed.
_CHAIN = 20

#: Texts that are remembered of one submission.
_REMEMBERED = 50_000


class GraphWalker:
    """Finds what the tasks of one submission say they read.

    Parameters
    ----------
    own : mapping
        The definitions of the submission, by key.
    known : mapping
        The scheduler's tasks, for data that was submitted before.

    Attributes
    ----------
    failures : Counter
        How often what went wrong, by reason.
    """

    def __init__(self, own: Mapping[Any, Any], known: Mapping[Any, Any]) -> None:
        self.failures: Counter[str] = Counter()
        self._kinds = Kinds(self._fail)
        self._kind = self._kinds.kind
        self._callees = self._kinds.callees
        self._learn = self._kinds.learn
        self._memo: dict[Any, Any] = {}
        self._shared: dict[Any, Any] = {}
        self._texts: dict[Any, str | None] = {}
        self._data: dict[int, tuple[Any, list[dict[str, Any]]]] = {}
        self._own: dict[Any, Any] = {}
        self._known = known
        self._rows: dict[Any, dict[str, Any]] = {}
        self._left = MAX_PARTS
        self._cut = False
        self.know(own)

    def know(self, own: Mapping[Any, Any]) -> None:
        """Take more definitions of the submission: tasks may refer to data among them."""
        self._own.update((k, s) for k, s in own.items() if self._kind(s) in (DATA, REF))

    def claims(self, spec: Any) -> list[dict[str, Any]]:
        """Return the rows for one task; never raises."""
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
            self.failures["a definition is too large to be looked at as a whole"] += 1
        return rows

    # The walk.

    def _task(self, task: Any, env: dict[Any, Any], depth: int) -> None:
        if depth > MAX_DEPTH or self._left <= 0:
            self._cut = True
            return
        self._left -= 1
        function = task.func
        callee = self._callees.get(id(function)) or self._learn(function)
        role = callee.role
        if role == SUBGRAPH:
            self._subgraph(task, env, depth)
            return
        if role == EXTRA:
            callee = self._called_with_extra(task, env, depth) or callee
            role = callee.role
        if role == KNOWN and self._ask(callee, self._call(callee, task, env, depth)):
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
                    kind = self._kinds.learn_type(type(value))
                if not only_tasks or kind is TASK:
                    self._look(value, kind, env, depth)

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
        nothing_yet = True
        for number, value in enumerate(values):
            kind = self._kind(value)
            if kind is SKIP:
                if nothing_yet and number > _PROBE:
                    return
                continue
            nothing_yet = False
            if self._left <= 0:
                self._cut = True
                return
            self._look(value, kind, env, depth)

    def _look(self, value: Any, kind: Any, env: dict[Any, Any], depth: int) -> None:
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
            self._look(value.value, self._kind(value.value), env, depth + 1)
        elif kind is MAPPING:
            self._each(dict.values(value), env, depth + 1)
        elif kind is PARTIAL:
            self._each((*value.args, *value.keywords.values()), env, depth + 1)
        elif kind is PATH:
            self._path(value)
        elif kind.__class__ is Callee:
            self._ask(kind, value)
        elif kind is not SKIP:
            self._each(kind(value), env, depth + 1)

    def _referred(self, node: Any, depth: int) -> None:
        """Look at data that several tasks may refer to; once."""
        known = self._data.get(id(node))
        if known is None:
            before, self._rows = self._rows, {}
            self._look(node.value, self._kind(node.value), {}, depth + 1)
            known = self._data[id(node)] = (node, list(self._rows.values()))
            self._rows = before
        for row in known[1]:
            self._put(row)

    def _follow(self, ref: Any, env: dict[Any, Any]) -> Any:
        """Return what a reference leads to: data, a task within this one, or None."""
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

    # Calls, as extractors get them.

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
        callee = self._callees.get(id(value.func)) or self._learn(value.func)
        if callee.role != CONTAINER:
            return self._call(callee, value, env, depth + 1)
        values = [self._value(part, env, depth + 1) for part in value.args]
        make = value.kwargs.get("constructor") or value.kwargs.get("typ")
        if type(value).__name__ == "Dict":
            return dict(zip(values[::2], values[1::2], strict=False))
        return tuple(values) if make is tuple else values

    def _called_with_extra(self, task: Any, env: dict[Any, Any], depth: int) -> Callee | None:
        """See through `_pass_extra_kwargs`, by which map_blocks calls the user's function."""
        function, names, *args = [self._value(value, env, depth) for value in task.args]
        callee = self._callees.get(id(function)) or self._learn(function)
        if callee.extractor is None:
            return None
        extra = dict(zip(names, args, strict=False))
        kwargs = {k: self._value(v, env, depth) for k, v in task.kwargs.items()}
        rest = tuple(args[len(names) :])
        call = Call(callee.name, callee.function, rest, {**extra, **kwargs}, self._shared)
        found = self._ask(callee, call)
        return Callee(callee.name, None, WRITER) if found else None

    # What is found.

    def _ask(self, callee: Callee, thing: Any) -> bool:
        """Ask an extractor; return whether it found anything."""
        extractor = callee.extractor
        before = len(self._rows)
        found = False
        try:
            for claim in itertools.islice(extractor(thing), MAX_PARTS):  # type: ignore[misc]
                found = True
                self._put(row_of(claim, callee.name, self._memo))
        except BaseException as error:  # noqa: BLE001  a user's extractor may even exit
            self._fail(f"the extractor for {callee.name}", error)
        return found or len(self._rows) > before

    def _text(self, value: Any) -> None:
        texts = self._texts
        if type(value) is not str:  # types derived from text may compare as they like
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
        place = row["uri"], get("dataset"), get("tree")
        what = (*place, get("first"), get("last"), get("selection"))
        known = self._rows.get(what)
        self._rows[what] = row if known is None else {**row, **known}

    def _fail(self, what: str, error: BaseException) -> None:
        try:
            said = redact_text(clip(str(error), 300))
        except Exception:  # noqa: BLE001  a user's error may do anything
            said = ""
        self.failures[f"{what}: {type(error).__name__}: {said}"] += 1
