"""Rows of messages as batches of a segment: keys in their wire form, intervals as lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from dask_strata.schema import KEY_MARK, RECORDED, Kind
from dask_strata.store.segments.frames import Batch

_ORIGIN = ("process", "seq")


def wire_batch(table: str, rows: Sequence[Mapping[str, Any]]) -> Batch:
    r"""Return the batch of a segment that has some rows of messages.

    Parameters
    ----------
    table : str
        Name of the table.
    rows : sequence of mapping
        Checked rows, as `dask_strata.brokers.message.decode` returns them.

    Examples
    --------
    >>> wire_batch("steals", [{"key": "('x', 0)", "key_type": "tuple"}]).columns["key"]
    ["\x00tuple\x00('x', 0)"]
    """
    columns: dict[str, Any] = {}
    for name, kind in _columns(table).items():
        values = [row.get(name) for row in rows]
        if kind == "key":
            kinds = [row.get(f"{name}_type") for row in rows]
            values = list(map(_wire_key, values, kinds))
        elif (convert := _CONVERTED.get(kind)) is not None:
            values = [None if value is None else convert(value) for value in values]
        if any(value is not None for value in values):
            columns[name] = values
    return Batch(table, len(rows), columns)


@cache
def _columns(table: str) -> dict[str, Kind]:
    return {c.name: c.kind for c in RECORDED[table].all_columns if c.name not in _ORIGIN}


def _wire_key(text: Any, kind: Any) -> Any:
    if text is None or (kind in {None, "str"} and not text.startswith(KEY_MARK)):
        return text
    return f"{KEY_MARK}{kind or 'str'}{KEY_MARK}{text}"


def _intervals(value: list[dict[str, Any]]) -> list[list[Any]] | None:
    """Return intervals as action, start, duration and source; None if one has no times."""
    found = []
    for one in value:
        start, stop = one.get("start"), one.get("stop")
        if start is None or stop is None:
            return None
        found.append([one.get("action"), start, stop - start, one.get("source")])
    return found


_CONVERTED: dict[Kind, Callable[[Any], Any]] = {
    "float": float,
    "seconds": float,
    "intervals": _intervals,
}
