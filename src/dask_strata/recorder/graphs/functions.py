"""Names of the functions that tasks call, also inside tasks that Dask fused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from dask import _task_spec
from dask._task_spec import Alias, GraphNode, Task
from dask.utils import key_split

from dask_strata.recorder.pipeline.text import FUNCTIONS, name_of, type_name

#: Dask's function of a fused task; None if this version of Dask has none.
_EXECUTE_FUSED = getattr(_task_spec, "_execute_subgraph", None)

#: Bound on the names in one list.
_MOST = 200

#: Bound on the tasks of one fused task, and on the arguments of one task.
_PARTS = 2000

#: Bound on fused tasks inside fused tasks.
_DEPTH = 10

#: Bound on the cached names of one submission.
_REMEMBERED = 10_000

#: What Dask appends to the name of a layer whose blocks it fuses in a different order.
_INDEX = re.compile(r"(?:_\.\d{1,9}){1,64}$")

#: Beginning of a reference to an argument of a fused block; it names no task.
_ARGUMENT = "__dask_blockwise__"

#: Identities of the types of functions: a metaclass of a user may define any hash.
_FUNCTION_TYPES = frozenset(map(id, FUNCTIONS))

_TASK = id(Task)


class TaskFunctions(NamedTuple):
    """Names of the functions of one task.

    Attributes
    ----------
    function : str or None
        The function that produces the task's result; None for data.
    functions : str or None
        All functions as JSON, in the order of their calls; None if `function` is the only one.
    prefixes, layers : str or None
        Prefixes and layers of the keys that were fused into the task, as JSON; None if none were.
    """

    function: str | None
    functions: str | None = None
    prefixes: str | None = None
    layers: str | None = None


_DATA = TaskFunctions(None)


class FunctionNames:
    """Names the functions of the tasks of one submission.

    Names are cached by the identity of functions and fused graphs, so the definitions must live
    as long as this object. No function is called.

    Examples
    --------
    >>> from dask._task_spec import Task
    >>> FunctionNames().of(Task("key", len, [])).function
    'builtins.len'
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}
        self._single: dict[int, TaskFunctions] = {}
        self._shared: dict[int, TaskFunctions] = {}
        self._alike: dict[tuple[Any, ...], TaskFunctions] = {}
        self._texts: dict[tuple[str, ...], str] = {}

    def of(self, spec: Any) -> TaskFunctions:
        """Return the names for a task's definition: one of Dask's graph nodes."""
        function = getattr(spec, "func", None)
        if function is None:
            return _DATA
        inner = _inner(spec)
        if inner is None:
            given = _given(spec)
            if given:
                return self._of_names(self._with_given(function, given))
            found = self._single.get(id(function))
            if found is None:
                found = self._of_names(self._with_given(function, []))
                _remember(self._single, id(function), found)
            return found
        found = self._shared.get(id(inner))
        if found is None:
            try:
                found = self._of_fused(spec, inner)
            except Exception:  # noqa: BLE001  keys and tasks of users may define any attribute
                found = TaskFunctions(self._name(function)[0])
            _remember(self._shared, id(inner), found)
        return found

    def _of_fused(self, spec: Any, inner: dict[Any, Any]) -> TaskFunctions:
        """Return the names for a fused task; most tasks of a layer have the same."""
        if len(inner) > _PARTS:
            return self._describe_fused(spec)
        layers_and_functions: list[Any] = []
        for key, node in inner.items():
            layers_and_functions.append(key[0] if type(key) is tuple and key else key)
            function = getattr(node, "func", None)
            if function is not None:
                layers_and_functions.append(id(function))
                layers_and_functions.extend(map(id, _given(node)))
                if function is _EXECUTE_FUSED:
                    layers_and_functions.append(id(_inner(node)))
        alike = tuple(layers_and_functions)
        found = self._alike.get(alike)
        if found is None:
            found = self._describe_fused(spec)
            _remember(self._alike, alike, found)
        return found

    def _describe_fused(self, spec: Any) -> TaskFunctions:
        names: list[str] = []
        layers: dict[str, None] = {}
        prefixes: dict[str, None] = {}
        for key, node in islice(_nodes(spec, _DEPTH), _PARTS):
            layer = _layer(key)
            if layer is not None and not layer.startswith(_ARGUMENT) and len(layers) < _MOST:
                layers[layer] = None
                prefixes[key_split(layer)] = None
            if getattr(node, "func", None) is not None and _inner(node) is None:
                names.extend(self._called(node) if len(names) < _MOST else ())
        return TaskFunctions(
            self._name(_result(spec).func)[0],
            self._text(tuple(names[:_MOST])),
            self._text(tuple(prefixes)),
            self._text(tuple(layers)),
        )

    def _of_names(self, names: tuple[str, ...]) -> TaskFunctions:
        return TaskFunctions(names[0], self._text(names) if len(names) > 1 else None)

    def _called(self, node: Any) -> tuple[str, ...]:
        """Return the names of a call: its function, and functions among its arguments."""
        return self._with_given(node.func, _given(node))

    def _with_given(self, function: Any, given: list[Any]) -> tuple[str, ...]:
        names = self._name(function)
        for argument in given:
            names = (*names, *self._name(argument))
        return names[:_MOST]

    def _name(self, function: Any) -> tuple[str, ...]:
        """Return the name of a function; for a composition, also the names of its parts."""
        names = self._names.get(id(function))
        if names is None:
            try:
                names = (name_of(function), *map(name_of, _composed(function)))
            except Exception:  # noqa: BLE001  a user's object may define any attribute
                names = (type_name(function),)
            _remember(self._names, id(function), names)
        return names

    def _text(self, names: tuple[str, ...]) -> str:
        text = self._texts.get(names)
        if text is None:
            text = json.dumps(names, ensure_ascii=False)
            _remember(self._texts, names, text)
        return text


def _remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= _REMEMBERED:
        cache.clear()
    cache[key] = value


def _given(node: Any, depth: int = 3) -> list[Any]:
    """Return the functions among the arguments of a task, and of tasks among the arguments."""
    arguments = getattr(node, "args", None)
    keywords = getattr(node, "kwargs", None)
    values = arguments[:_PARTS] if type(arguments) is tuple else ()
    if keywords and type(keywords) is dict:
        values = (*values, *islice(keywords.values(), _PARTS))
    found: list[Any] = []
    for value in values:
        kind = id(type(value))
        if kind in _FUNCTION_TYPES:
            found.append(value)
        elif kind == _TASK and depth:
            found += [value.func, *_given(value, depth - 1)]
        else:
            continue
        if len(found) >= _MOST:
            break
    return found


def _composed(function: Any) -> tuple[Any, ...]:
    """Return the functions of toolz's `compose`, in the order of their calls."""
    if type(function).__name__ != "Compose":
        return ()
    return (function.first, *islice(function.funcs, _MOST))


def _inner(spec: Any) -> dict[Any, Any] | None:
    """Return the graph inside a fused task; None for any other task."""
    if spec.func is not _EXECUTE_FUSED:
        return None
    inner = spec.args[0] if isinstance(spec.args, tuple) and spec.args else None
    return inner if type(inner) is dict else None


def _result(spec: Any) -> Any:
    """Return the task inside a fused task that produces its result."""
    for _ in range(_DEPTH):
        inner = _inner(spec)
        if inner is None:
            break
        node = inner.get(spec.args[1])
        for _alias in range(_DEPTH):
            node = inner.get(node.target) if isinstance(node, Alias) else node
        if getattr(node, "func", None) is None:
            break
        spec = node
    return spec


def _nodes(spec: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and tasks inside a fused task, dependencies first."""
    inner = _inner(spec)
    if inner is None or depth <= 0:
        return
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(key, False) for key in spec.args[1:2] if key in inner]
    while stack:
        key, ready = stack.pop()
        node = inner[key]
        if ready:
            if hasattr(node, "func"):
                yield from _nodes(node, depth - 1)
            yield key, node
        elif key not in seen and len(seen) < _PARTS:
            seen.add(key)
            stack.append((key, True))
            if isinstance(node, GraphNode):
                stack.extend((d, False) for d in node.dependencies if d in inner)


def _layer(key: Any) -> str | None:
    """Return the layer of a key inside a fused task.

    >>> _layer(("add-1f", 0, 0)), _layer("ones-2c_.1_.0")
    ('add-1f', 'ones-2c')
    """
    name = key[0] if isinstance(key, tuple) and key else key
    return _INDEX.sub("", name) if isinstance(name, str) else None
