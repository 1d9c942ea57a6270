"""Text forms of arbitrary objects of the user's graph."""

from __future__ import annotations

import json
import types
from collections.abc import Sequence
from functools import partial
from typing import Any

from dask.utils import methodcaller

from dask_strata.schema import wire_key

#: Types of functions. Classes are none of them: as values they mostly are types of data.
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    partial,
    methodcaller,
)

#: Bound on nested partials.
_CHAIN = 10

#: Longest recorded text of one value, in characters; a longer one is cut, see `clip`.
LIMIT = 100_000

#: The first text after all those that start with the mark of keys that are not texts.
_AFTER_MARK = "\x01"


def clip(text: str, limit: int = LIMIT) -> str:
    """Return the text; if it is too long, cut it and append the number of missing characters.

    Parameters
    ----------
    text : str
        The text.
    limit : int, optional
        Number of characters to keep.

    Examples
    --------
    >>> clip("0123456789", limit=4)
    '0123… (6 more characters)'
    """
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def safe_repr(value: Any, limit: int = LIMIT) -> str:
    """Return `repr(value)`, cut at the limit, or the name of its type if `repr` raises.

    >>> class Broken:
    ...     def __repr__(self):
    ...         raise ValueError
    >>> safe_repr(Broken())
    '<Broken: repr failed with ValueError>'
    """
    try:
        return clip(repr(value), limit)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may do anything
        return f"<{type(value).__name__}: repr failed with {type(error).__name__}>"


def name_of(function: Any) -> str:
    """Return the qualified name of a function, or that of the type of a callable object.

    >>> name_of(partial(len)), name_of(methodcaller("astype"))
    ('builtins.len', 'dask.utils.M.astype')
    """
    for _ in range(_CHAIN):
        if isinstance(function, methodcaller):
            return clip(f"dask.utils.M.{function.method}", 500)
        inner = getattr(function, "func", None)
        if not callable(inner):
            break
        function = inner
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        return type_name(function)
    return clip(f"{module}.{name}" if isinstance(module, str) else name, 500)


def type_name(value: Any) -> str:
    """Return the qualified name of a value's type."""
    return clip(f"{type(value).__module__}.{type(value).__qualname__}", 500)


def json_text(value: Any) -> str:
    r"""Return the value as JSON; objects without a JSON form are replaced by their `repr`.

    Functions are replaced by their names, as their `repr` contains an address.

    >>> json_text({("x", 0): {1, }, "n": None})
    '{"(\'x\', 0)": [1], "n": null}'
    """
    try:
        return clip(_encode(value))
    except Exception:  # noqa: BLE001  keys without a JSON form; a user's mapping may do anything
        return clip(json.dumps(_simplify(value, 20), ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return list(value)
    return plain_text(value)


#: As `json.dumps`, which would make an encoder for each value.
_encode = json.JSONEncoder(default=_plain, ensure_ascii=False).encode


def plain_text(value: Any) -> str:
    """Return the name of a function, or the `repr` of another object."""
    if isinstance(value, FUNCTIONS):
        try:
            return name_of(value)
        except Exception:  # noqa: BLE001  a user's attributes may do anything
            return type_name(value)
    return safe_repr(value)


def _simplify(value: Any, depth: int) -> Any:
    try:
        return _simplified(value, depth)
    except Exception:  # noqa: BLE001  a user's mapping may do anything
        return plain_text(value)


def _simplified(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth and isinstance(value, dict):
        return {
            k if isinstance(k, str) else safe_repr(k): _simplify(v, depth - 1)
            for k, v in value.items()
        }
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_simplify(v, depth - 1) for v in value]
    return plain_text(value)


def wire_keys(keys: Sequence[Any]) -> list[str]:
    r"""Return the text by which the record stores each key; fast if most keys are strings.

    >>> wire_keys(["sum-1", ("x", 0)])
    ['sum-1', "\x00tuple\x00('x', 0)"]
    """
    texts: dict[int, str] = {}

    def text(key: Any) -> str:
        # The rows of a task share its key, and the text of a tuple takes long to make. The
        # identity avoids a user's hash; `keys` keeps the key, so that no other gets its identity.
        found = texts.get(id(key))
        if found is None:
            found = texts[id(key)] = wire_key(key)
        return found

    # Only the empty text and texts with the mark sort before _AFTER_MARK.
    return [k if k.__class__ is str and k >= _AFTER_MARK else text(k) for k in keys]
