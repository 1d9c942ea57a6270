"""Rows of tables as values of JSON: times in integer nanoseconds, missing values left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dask_strata.errors import MessageError
from dask_strata.schema import Kind, Table
from dask_strata.store.segments.collect import ARROW_TYPES, LIMITS

#: Values that JSON's numbers lack, as texts.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_INT64 = 1 << 63

#: Arrow types in which a row is converted to Python: times as integers.
_PLAIN_TYPES: dict[Kind, pa.DataType] = {
    "time": pa.int64(),
    "intervals": pa.list_(
        pa.struct(
            [
                ("action", pa.string()),
                ("start", pa.int64()),
                ("stop", pa.int64()),
                ("source", pa.string()),
            ]
        )
    ),
}

_ORIGIN = ("process", "seq")

#: Results of `column_kinds` by table: hashing a table takes longer than checking a row.
_kinds: dict[str, dict[str, Kind]] = {}


def json_text(value: Any) -> str:
    """Return a value as JSON; numbers of NumPy as numbers, NaN and infinity as texts.

    >>> import numpy as np
    >>> json_text({"a": np.int64(1), "b": float("nan"), "c": (np.float32(0.5),)})
    '{"a":1,"b":"NaN","c":[0.5]}'
    """
    try:
        return _encoder.encode(value)
    except ValueError:  # NaN or infinity
        return _encoder.encode(_finite(value))


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    item = getattr(value, "item", None)  # scalars of NumPy
    plain = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    if plain is None:
        raise TypeError(f"a {type(value).__name__} is no value of JSON")
    return _finite(plain)


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)


def _finite(value: Any) -> Any:
    """Return a value with texts in place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def column_kinds(table: Table) -> dict[str, Kind]:
    """Return the kind of each column of a message's row; a key has two columns of text.

    >>> from dask_strata.schema import RECORDED
    >>> list(column_kinds(RECORDED["steals"]))[:3]
    ['time', 'key', 'key_type']
    """
    kinds = _kinds.get(table.name)
    if kinds is not None:
        return kinds
    kinds = {}
    for column in table.all_columns:
        if column.name in _ORIGIN:
            continue
        kinds[column.name] = column.kind
        if column.kind == "key":
            kinds[f"{column.name}_type"] = "text"
    _kinds[table.name] = kinds
    return kinds


def plain_column(kind: Kind, column: pa.Array) -> pa.Array:
    """Return a column with times as integers."""
    return column.cast(_PLAIN_TYPES[kind]) if kind in _PLAIN_TYPES else column


def json_values(table: Table, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield each row as a mapping without its missing values."""
    kinds = column_kinds(table)
    names = rows.schema.names
    columns = [plain_column(kinds[n], rows[n]).to_pylist() for n in names]
    infinite = {n for n in names if kinds[n] in {"float", "seconds"}}
    for values in zip(*columns, strict=True) if names else ({} for _ in range(len(rows))):
        row = {n: v for n, v in zip(names, values, strict=False) if v is not None}
        for name in infinite & row.keys():
            row[name] = _finite(row[name])
        yield row


def check_row(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return the known columns of a row that anyone may have sent, after checking each value.

    Raises
    ------
    MessageError
        A value has a wrong type or is out of range.
    """
    kinds = column_kinds(table)
    checked = {}
    for name, value in row.items():
        kind = kinds.get(name)
        if kind is None or value is None:  # a column of a later version
            continue
        if not _CHECKS[kind](value):
            raise MessageError(f"{table.name}.{name} is not of the kind {kind}, or out of range")
        checked[name] = value
    return checked


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:  # a surrogate
        return False
    return True


def _is_int(kind: Kind) -> Callable[[Any], bool]:
    low, high = LIMITS.get(kind, (-_INT64, _INT64 - 1))

    def check(value: Any) -> bool:
        return type(value) is int and low <= value <= high

    return check


def _is_float(kind: Kind) -> Callable[[Any], bool]:
    low, high = LIMITS.get(kind, (-math.inf, math.inf))

    def check(value: Any) -> bool:
        if type(value) is str:
            return kind not in LIMITS and value in _NOT_FINITE
        if type(value) is int:
            return -_INT64 <= value < _INT64 and low <= value <= high
        return type(value) is float and math.isfinite(value) and low <= value <= high

    return check


_is_time = _is_int("time")


def _is_intervals(value: Any) -> bool:
    return type(value) is list and all(
        type(one) is dict
        and all(one.get(n) is None or _is_text(one[n]) for n in ("action", "source"))
        and all(one.get(n) is None or _is_time(one[n]) for n in ("start", "stop"))
        for one in value
    )


_CHECKS: dict[Kind, Callable[[Any], bool]] = {
    "time": _is_time,
    "bytes": _is_int("bytes"),
    "int": _is_int("int"),
    "seconds": _is_float("seconds"),
    "float": _is_float("float"),
    "bool": lambda value: type(value) is bool,
    "text": _is_text,
    "long": _is_text,
    "key": _is_text,
    "intervals": _is_intervals,
}


def arrow_column(kind: Kind, values: list[Any]) -> pa.Array:
    """Return checked values of JSON as an Arrow column of the schema's type.

    >>> arrow_column("float", [1, "NaN", None]).to_pylist()
    [1.0, nan, None]
    """
    if kind in {"float", "seconds"}:
        values = [
            None if v is None else _NOT_FINITE[v] if type(v) is str else float(v) for v in values
        ]
    target = ARROW_TYPES[kind]
    if pa.types.is_dictionary(target):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, _PLAIN_TYPES.get(kind, target)).cast(target)
