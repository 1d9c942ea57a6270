"""Rows of ``claimed_inputs``: the mappings that extractors yield, checked, redacted and clipped."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dask_strata.recorder.inputs.extractors.paths import absolute, given_path
from dask_strata.recorder.pipeline.redact import redact_json, redact_path, redact_text
from dask_strata.recorder.pipeline.text import clip, json_text, safe_repr
from dask_strata.schema import TABLES

#: Longest text of a list of columns, in characters: it is repeated in each row.
_LONGEST_COLUMNS = 4000

#: Number of columns that a longer list is cut to.
_KEPT_COLUMNS = 100

_LONGEST_TEXT = 5000
_INT64 = 1 << 63


def row_of(claim: Mapping[str, Any], extractor: str, memo: dict[Any, Any]) -> dict[str, Any]:
    """Return the row for a mapping that an extractor yielded.

    Parameters
    ----------
    claim : mapping
        Columns of ``claimed_inputs``; ``uri`` is required.
    extractor : str
        Qualified name for which the extractor is registered, or "argument".
    memo : dict
        Caches results; use one for as long as the definitions of a submission live.

    Returns
    -------
    dict
        The row, without submission and key.

    Raises
    ------
    ValueError, KeyError
        ``uri`` is missing or not a path, or the table has no such column.

    Examples
    --------
    >>> row_of({"uri": "/data//x.csv", "first": 0, "last": 10}, "mylab.read", {})
    {'uri': '/data/x.csv', 'extractor': 'mylab.read', 'first': 0, 'last': 10}
    """
    given = claim["uri"]
    uri = memo.get(given) if given.__class__ is str else None
    if uri is None:
        path = given_path(given)
        if not path:
            raise ValueError(f"its uri is {safe_repr(given, 100)}")
        uri = clip(absolute(redact_path(path)), _LONGEST_TEXT)
        if given.__class__ is str:
            memo[given] = uri
    row = {"uri": uri, "extractor": extractor}
    for name, value in claim.items():
        if value is None or name == "uri":
            continue
        if name == "columns":
            row[name] = _columns(value, memo)
        else:
            read = _READ[name](value)
            if read is not None:
                row[name] = read
    return row


def _columns(value: Any, memo: dict[Any, Any]) -> str:
    # All tasks of a reader share one list. Keep it in the memo, so that its id is not reused.
    cached = memo.get(id(value))
    if cached is None:
        if isinstance(value, (set, frozenset)):
            ordered: Any = sorted(map(str, value))
        else:
            ordered = value if isinstance(value, str) else list(value)
        text = value if isinstance(value, str) else json_text(ordered)
        if len(text) > _LONGEST_COLUMNS and not isinstance(value, str):
            n_more = len(ordered) - _KEPT_COLUMNS
            text = json_text([*ordered[:_KEPT_COLUMNS], f"… {n_more} more"])
        cached = memo[id(value)] = (redact_text(clip(text, 2 * _LONGEST_COLUMNS)), value)
    return str(cached[0])


def _integer(value: Any) -> int | None:
    number = operator.index(value)
    return number if -_INT64 <= number < _INT64 else None


@lru_cache(maxsize=1024)
def _redacted(text: str) -> str:
    # All tasks of a reader share one dataset, tree and unit.
    return redact_text(text)


def _text(value: Any) -> str:
    return _redacted(clip(value if isinstance(value, str) else safe_repr(value), _LONGEST_TEXT))


def _json(value: Any) -> str:
    if isinstance(value, str):
        return clip(redact_text(value))
    try:
        return clip(redact_text(json.dumps(value, default=operator.index)))
    except (TypeError, ValueError):
        return redact_json(value)


_BY_KIND: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "long": _json,
    "int": _integer,
    "bytes": _integer,
}
#: Columns that the recorder fills, and the two that `row_of` reads itself.
_NOT_READ = {"submission", "key", "uri", "extractor", "columns"}

#: Function that reads the value of each column that an extractor may yield, except the uri and
#: ``columns``.
_READ = {
    column.name: _BY_KIND[column.kind]
    for column in TABLES["claimed_inputs"].columns
    if column.name not in _NOT_READ
}
