"""Text forms of arbitrary objects of the user's graph."""

from __future__ import annotations

import json
from typing import Any

from dask_strata.schema import wire_key

#: Longest recorded text of one value, in characters; a longer one is cut, see `clip`.
LIMIT = 100_000


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


def json_text(value: Any) -> str:
    r"""Return the value as JSON; objects without a JSON form are replaced by their `repr`.

    >>> json_text({("x", 0): {1, }, "n": None})
    '{"(\'x\', 0)": [1], "n": null}'
    """
    try:
        return clip(json.dumps(value, default=_plain, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return clip(json.dumps(_simplify(value, 20), ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return list(value)
    return safe_repr(value)


def _simplify(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth and isinstance(value, dict):
        return {
            k if isinstance(k, str) else safe_repr(k): _simplify(v, depth - 1)
            for k, v in value.items()
        }
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_simplify(v, depth - 1) for v in value]
    return safe_repr(value)


def wire_keys(keys: Any) -> list[str]:
    r"""Return the text by which the record stores each key; fast if most keys are strings.

    >>> wire_keys(["sum-1", ("x", 0)])
    ['sum-1', "\x00tuple\x00('x', 0)"]
    """
    return [k if k.__class__ is str and k[:1] != "\x00" else wire_key(k) for k in keys]
