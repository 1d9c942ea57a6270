"""Texts of a run in CSV: no spreadsheet takes one for a formula, and each can be restored."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.report.words import spreadsheet_text

#: Begin of a text that a spreadsheet could take for a formula.
_FORMULA = "[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_BEHIND_APOSTROPHES = re.compile(f"'+{_FORMULA}")


def guarded(text: str) -> str:
    """Return a text for a cell of a CSV file; `restored` is its inverse.

    Parameters
    ----------
    text : str
        Any text of a run.

    Returns
    -------
    str
        The text, with an apostrophe in front if a spreadsheet could take it, or what follows its
        apostrophes, for a formula.

    Examples
    --------
    >>> guarded("=1+1"), guarded("'=1+1"), guarded("it's"), guarded("-1.5")
    ("'=1+1", "''=1+1", "it's", '-1.5')
    """
    return f"'{text}" if _BEHIND_APOSTROPHES.match(text) else spreadsheet_text(text)


def restored(cell: str) -> str:
    """Return the text of a cell that `guarded` made.

    >>> restored("'=1+1"), restored("''=1+1"), restored("it's"), restored("-1.5")
    ('=1+1', "'=1+1", "it's", '-1.5')
    """
    return cell[1:] if _BEHIND_APOSTROPHES.match(cell) else cell


def guarded_column(column: pa.Array) -> pa.Array:
    """Return a column of texts, each `guarded`."""
    found = pc.fill_null(pc.match_substring_regex(column, f"^'*{_FORMULA}"), fill_value=False)
    if not found.true_count:
        return column
    texts = [guarded(text) for text in column.filter(found).to_pylist()]
    return pc.replace_with_mask(column, found, pa.array(texts, column.type))


def json_lists(column: pa.Array) -> pa.Array:
    """Return a column of intervals as JSON, with times as integer nanoseconds.

    >>> times = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))
    >>> rows = pa.StructArray.from_arrays([pa.array(["compute"]), times], ["action", "start"])
    >>> json_lists(pa.ListArray.from_arrays([0, 1], rows)).to_pylist()
    ['[{"action": "compute", "start": 1700000000123456789}]']
    """
    kind = column.type.value_type
    fields = [
        pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in kind
    ]
    plain = column.cast(pa.list_(pa.struct(fields)))
    return pa.array([_json(value) for value in plain.to_pylist()], pa.string())


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
