"""Ids of traces and spans, and attributes, in OTLP's JSON.

Ids of spans are decimal numbers, whose digits are hexadecimal ones, too. Their first digit is the
kind of the span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Ints
from dask_strata.export.json_text import dumps, joined

#: First digits of the ids of spans.
RUN, SUBMISSION, ATTEMPT, PHASE = "1", "2", "3", "4"

_DIGITS = 15


def trace_id(run_id: str) -> str:
    """Return the id of the trace of a run: the same for each export.

    >>> trace_id("0a1b2c3d")
    'afeb3a98696b83c8b10655d4f3cbe643'
    """
    return hashlib.sha256(f"dask-strata {run_id}".encode()).hexdigest()[:32]


def span_id(kind: str, number: int) -> str:
    """Return the id of a span.

    >>> span_id(ATTEMPT, 12)
    '3000000000000012'
    """
    return kind + str(number).zfill(_DIGITS)


def span_id_sql(kind: str, number: str) -> str:
    """Return SQL for the id of a span."""
    return f"'{kind}' || lpad(({number})::varchar, {_DIGITS}, '0')"


def span_ids(kind: str, numbers: Ints) -> pa.Array:
    """Return the ids of many spans."""
    digits = pa.array(numbers.astype(np.int64)).cast(pa.string())
    return joined(kind, pc.utf8_lpad(digits, _DIGITS, "0"))


def attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes; those without a value are left out.

    >>> attributes({"a": 1, "b": None})
    [{'key': 'a', 'value': {'intValue': '1'}}]
    """
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # a text, as JSON's numbers may lose digits
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


def text_sql(key: str, value: str) -> str:
    """Return SQL for an attribute with a text, after a comma; empty for null."""
    head = dumps({"key": key})[:-1]
    return f"""coalesce(',{head},"value":{{"stringValue":' || to_json({value}) || '}}}}', '')"""


def int_sql(key: str, value: str) -> str:
    """Return SQL for an attribute with an integer, after a comma; empty for null."""
    head = dumps({"key": key})[:-1]
    return f"""coalesce(',{head},"value":{{"intValue":"' || {value} || '"}}}}', '')"""


def double_sql(key: str, value: str) -> str:
    """Return SQL for an attribute with a number, after a comma; empty for null, infinity, NaN."""
    head = dumps({"key": key})[:-1]
    found = f"""',{head},"value":{{"doubleValue":' || {value} || '}}}}'"""
    return f"coalesce(case when isfinite({value}::double) then {found} end, '')"
