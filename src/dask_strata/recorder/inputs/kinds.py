"""The kind of each value, by its type, and the role of each call, by its function.

Dask's types are recognised by name, so a version of Dask may lack one of them.
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

#: Bound on nested partials.
_CHAIN = 20

# Kinds of values.
SKIP, TEXT, PATH, REF, DATA, TASK, MAPPING, PARTIAL = range(8)

_KINDS: dict[type, Any] = {
    **dict.fromkeys((bool, int, float, complex, type(None), slice, range, type), SKIP),
    **dict.fromkeys((types.FunctionType, types.BuiltinFunctionType, types.MethodType), SKIP),
    **dict.fromkeys((str, bytes), TEXT),
    # The kind of a container is a function that iterates over it, even over a subclass that
    # defines its own iteration.
    **{kind: kind.__iter__ for kind in (list, tuple, set, frozenset, deque)},
    dict: MAPPING,
    functools.partial: PARTIAL,
}
#: Kinds by the identity of types: a metaclass may define any hash.
_BY_IDENTITY: dict[int, Any] = {id(cls): kind for cls, kind in _KINDS.items()}
_NAMED_KINDS = {
    "dask._task_spec.Task": TASK,
    "dask._task_spec.DataNode": DATA,
    "dask._task_spec.Alias": REF,
    "dask._task_spec.TaskRef": REF,
}

# Roles of calls.
PLAIN, SUBGRAPH, CONTAINER, WRITER, KNOWN, EXTRA = range(6)

_ROLES = {
    "dask._task_spec._execute_subgraph": SUBGRAPH,
    "dask._task_spec.NestedContainer.to_container": CONTAINER,
    "dask._task_spec._identity_cast": CONTAINER,
    "dask.array.core._pass_extra_kwargs": EXTRA,
    "dask.array.core.load_store_chunk": WRITER,
    "dask.array.core.store_chunk": WRITER,
}

#: Prefixes of functions that write: their paths are outputs, not inputs.
_WRITES = ("write", "save", "imsave", "imwrite", "dump", "_write", "_save")


@dataclass
class Callee:
    """A called object, without the partials around it.

    Attributes
    ----------
    name : str
        Qualified name of the function, or of the type of a callable object.
    function : object
        The function or callable object.
    role : int
        One of the roles of this module.
    extractor : callable or None
        The extractor for it.
    args, kwargs
        Arguments of the partials.
    extra : tuple
        Values besides the call's own arguments to search: those of the partials, and the object of
        a method.
    given : object
        The object with its partials, kept so that its identity is not reused.
    """

    name: str
    function: Any
    role: int = PLAIN
    extractor: Extractor | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    extra: tuple[Any, ...] = ()
    given: Any = None


class Kinds:
    """Cache of the kinds of types and of callees, by their identity.

    Parameters
    ----------
    failed : callable
        Called with a description and the exception when an extractor cannot be loaded.
    """

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        # Keep each type and function, so that its identity is not reused.
        self.by_type = dict(_BY_IDENTITY)
        self.callees: dict[int, Callee] = {}
        self._types: list[type] = []

    def kind(self, value: Any) -> Any:
        """Return the kind of a value.

        It is one of the constants of this module, the iterating function of a container, or a
        `Callee` whose extractor takes such objects.
        """
        kind = self.by_type.get(id(type(value)))
        return self.kind_of_type(type(value)) if kind is None else kind

    def kind_of_type(self, cls: type) -> Any:
        """Determine and cache the kind of the values of a type."""
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

    def callee(self, function: Any) -> Callee:
        """Determine and cache the callee of a function, partial or callable object."""
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
        except BaseException as error:  # noqa: BLE001  loading an entry point runs foreign code
            self._failed(f"the extractor for {name}", error)
            return None
