"""What to do with a value, by its type, and with a call, by what is called.

Types of Dask's are told by their names, so that a version without one of them does no harm.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dask_strata.recorder.inputs.extractors import Extractor, find
from dask_strata.recorder.inputs.extractors.call import function_name, mro, type_name

#: Partials of partials that are opened.
_CHAIN = 20

# What to do with a value, by its type.
SKIP, TEXT, PATH, REF, DATA, TASK, MAPPING, PARTIAL = range(8)

_KINDS: dict[type, Any] = {
    **dict.fromkeys((bool, int, float, complex, type(None), slice, range, type), SKIP),
    **dict.fromkeys((types.FunctionType, types.BuiltinFunctionType, types.MethodType), SKIP),
    **dict.fromkeys((str, bytes), TEXT),
    # A container is what iterates over it, without its own say.
    **{kind: kind.__iter__ for kind in (list, tuple, set, frozenset, deque)},
    dict: MAPPING,
    functools.partial: PARTIAL,
}
#: A type with a metaclass may hash as it likes: types are known by identity.
_BY_IDENTITY: dict[int, Any] = {id(kind): what for kind, what in _KINDS.items()}
_NAMED_KINDS = {
    "dask._task_spec.Task": TASK,
    "dask._task_spec.DataNode": DATA,
    "dask._task_spec.Alias": REF,
    "dask._task_spec.TaskRef": REF,
}

# What to do with a call, by what is called.
PLAIN, SUBGRAPH, CONTAINER, WRITER, KNOWN, EXTRA = range(6)

_ROLES = {
    "dask._task_spec._execute_subgraph": SUBGRAPH,
    "dask._task_spec.NestedContainer.to_container": CONTAINER,
    "dask._task_spec._identity_cast": CONTAINER,
    "dask.array.core._pass_extra_kwargs": EXTRA,
    "dask.array.core.load_store_chunk": WRITER,
    "dask.array.core.store_chunk": WRITER,
}

#: How functions are called whose paths are where they write to.
_WRITES = ("write", "save", "imsave", "imwrite", "dump", "_write", "_save")


@dataclass
class Callee:
    """What is known of a thing that is called, the partials around it taken off."""

    name: str
    function: Any
    role: int = PLAIN
    extractor: Extractor | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    extra: tuple[Any, ...] = ()
    given: Any = None


class Kinds:
    """Knows types and functions by their identity, for as long as it lives itself.

    Parameters
    ----------
    failed : callable
        Is told what failed, and the exception.
    """

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        # Identities are as good as the things: all that is met here is kept.
        self.by_type = dict(_BY_IDENTITY)
        self.callees: dict[int, Callee] = {}
        self._types: list[type] = []

    def kind(self, value: Any) -> Any:
        """Return what to do with a value: a constant, what iterates over it, or a `Callee`."""
        kind = self.by_type.get(id(type(value)))
        return self.learn_type(type(value)) if kind is None else kind

    def learn_type(self, cls: type) -> Any:
        """Work out what to do with values of a type."""
        kind: Any = SKIP
        for base in mro(cls):
            name = type_name(base)
            extractor = self._find(name)
            if extractor is not None:
                kind = Callee(name, cls, KNOWN, extractor)
                break
            if name in _NAMED_KINDS or id(base) in _BY_IDENTITY:
                kind = _NAMED_KINDS.get(name, _BY_IDENTITY.get(id(base)))
                break
            if "__fspath__" in vars(base):
                kind = PATH
                break
        self._types.append(cls)
        self.by_type[id(cls)] = kind
        return kind

    def learn(self, function: Any) -> Callee:
        """Work out what is called, and what to do with calls of it."""
        given = function
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        for _ in range(_CHAIN):
            if not isinstance(function, functools.partial):
                break
            args = (*function.args, *args)
            kwargs = {**function.keywords, **kwargs}
            function = function.func
        name = function_name(function)
        extractor = self._find(name)
        if extractor is None and not isinstance(function, types.FunctionType):
            for base in mro(type(function)):
                extractor = self._find(type_name(base))
                if extractor is not None:
                    name = type_name(base)
                    break
        role = _ROLES.get(name, PLAIN)
        if extractor is not None:
            role = KNOWN
        elif name.rpartition(".")[2].startswith(_WRITES):
            role = WRITER
        extra = [v for v in (*args, *kwargs.values()) if self.kind(v) is not SKIP]
        if isinstance(function, types.MethodType):
            extra.append(function.__self__)
        callee = Callee(name, function, role, extractor, args, kwargs, tuple(extra), given)
        self.callees[id(given)] = callee
        return callee

    def _find(self, name: str) -> Extractor | None:
        try:
            return find(name)
        except BaseException as error:  # noqa: BLE001  an entry point may fail to load
            self._failed(f"the extractor for {name}", error)
            return None
