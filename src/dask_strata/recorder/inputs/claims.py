"""What an extractor yields becomes a row of `claimed_inputs`: checked, redacted, bounded."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dask_strata.recorder.inputs.extractors.places import absolute, given_path
from dask_strata.recorder.pipeline.redact import redact_path
from dask_strata.recorder.pipeline.text import clip, json_text, safe_repr
from dask_strata.schema import TABLES

#: Longest list of columns that is kept whole: it stands in each row.
_LONGEST_COLUMNS = 4000
_KEPT_COLUMNS = 100

_LONGEST_TEXT = 5000
_INT64 = 1 << 63


def row_of(claim: Mapping[str, Any], extractor: str, memo: dict[Any, Any]) -> dict[str, Any]:
    """Return the row for what an extractor yielded.

    Parameters
    ----------
    claim : mapping
        Columns of ``claimed_inputs``.
    extractor : str
        What yielded it.
    memo : dict
        Remembers texts, for as long as the definitions that they came from.

    Raises
    ------
    ValueError, KeyError
        There is no uri, or a column that the table does not have.
    """
    given = claim["uri"]
    uri = memo.get(given) if given.__class__ is str else None
    if uri is None:
        path = given_path(given)
        if not path:
            raise ValueError(f"its uri is {safe_repr(given, 100)}")
        uri = clip(redact_path(absolute(path)), _LONGEST_TEXT)
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
    # Tasks of one reader share the list; it is kept, so that its identity stays its own.
    known = memo.get(id(value))
    if known is None:
        if isinstance(value, (set, frozenset)):
            ordered: Any = sorted(map(str, value))
        else:
            ordered = value if isinstance(value, str) else list(value)
        text = value if isinstance(value, str) else json_text(ordered)
        if len(text) > _LONGEST_COLUMNS and not isinstance(value, str):
            left_out = len(ordered) - _KEPT_COLUMNS
            text = json_text([*ordered[:_KEPT_COLUMNS], f"… {left_out} more"])
        known = memo[id(value)] = (clip(text, 2 * _LONGEST_COLUMNS), value)
    return str(known[0])


def _integer(value: Any) -> int | None:
    number = operator.index(value)
    return number if -_INT64 <= number < _INT64 else None


def _text(value: Any) -> str:
    return clip(value if isinstance(value, str) else safe_repr(value), _LONGEST_TEXT)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return clip(value)
    try:
        return clip(json.dumps(value, default=operator.index))
    except (TypeError, ValueError):
        return json_text(value)


_BY_KIND: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "long": _json,
    "int": _integer,
    "bytes": _integer,
}
_OWN = {"submission", "key", "uri", "extractor", "columns"}

#: How each column that an extractor may yield is read.
_READ = {
    column.name: _BY_KIND[column.kind]
    for column in TABLES["claimed_inputs"].columns
    if column.name not in _OWN
}
