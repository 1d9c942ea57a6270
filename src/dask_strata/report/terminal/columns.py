"""Columns of a table on a terminal: their units, and which of them fit into its width."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from dask_strata.analysis.words import UNKNOWN
from dask_strata.errors import UsageError, suggestion
from dask_strata.report.words import duration, number, size, visible

#: Space between two columns.
GAP = 2

#: Least width of a text that is shortened: that of a run keeps its id.
_LEAST = 18

#: Texts are not wider than this beside others, if there is no space for all columns.
_MOST = 60

#: Columns with sentences: their start matters. Of keys, addresses and paths the end matters, too.
_SENTENCES = ("exception", "problem", "message", "text", "traceback", "description", "reason")

#: Least number of hidden columns that are named.
_NAMED = 4

_SECONDS = re.compile(r"(^|_)seconds\b")
_BYTES = re.compile(r"(^|_|n)bytes\b")


@dataclass(frozen=True)
class TableView:
    """How a user wants to see a table.

    Attributes
    ----------
    raw : bool
        Exact numbers in seconds and bytes, in place of units for people.
    wide : bool
        All columns, unshortened, however wide the terminal is.
    columns : tuple of str
        Names of the wanted columns; empty for those of the command.
    important : tuple of str
        Columns to keep where there is no space for all, most important first; others follow in
        their order.
    others : tuple of str
        Columns that the table has only with `wide` or `columns`.
    """

    raw: bool = False
    wide: bool = False
    columns: tuple[str, ...] = ()
    important: tuple[str, ...] = field(default=())
    others: tuple[str, ...] = field(default=())

    @property
    def has_all(self) -> bool:
        """Whether a command has to offer all columns, not only those of its usual table."""
        return self.wide or bool(self.columns)


def require_columns(wanted: Sequence[str], known: Collection[str]) -> None:
    """Raise UsageError for the first wanted column that does not exist.

    >>> require_columns(["key"], ["key", "state"])
    """
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"No column {name}.", hint=f"{suggestion(name, known)}There are: {', '.join(known)}"
            )


def human(name: str, value: Any) -> str:
    r"""Return a value of a column in a unit that people read.

    Parameters
    ----------
    name : str
        Name of the column, which has the unit of its numbers.
    value : object
        The value.

    Examples
    --------
    >>> human("compute_seconds", 1.8688e-05), human("sum(nbytes)", 5 << 20), human("n", 0.12345)
    ('0.0187 ms', '5 MiB', '0.123')
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if _SECONDS.search(name):
            return duration(value)
        if _BYTES.search(name):
            return size(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
    return cell(value)


def cell(value: Any) -> str:
    r"""Return a plain value as the text of a cell, with control characters spelled out.

    >>> cell(3), cell(0.25), cell("a\tb")
    ('3', '0.25', 'a\\tb')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def exact(value: Any) -> str:
    r"""Return a plain value with all its digits, for another program; empty if it is unknown.

    >>> exact(0.1), exact(None), exact(True), exact("a\tb"), exact([1])
    ('0.1', '', 'true', 'a\\tb', '[1]')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return visible(value)
    return visible(value.isoformat() if isinstance(value, datetime) else json.dumps(value))


def shortened(text: str, width: int, *, sentence: bool = False) -> str:
    """Return a text that is at most so wide: without its middle, or without its end.

    Parameters
    ----------
    text : str
        The text.
    width : int
        Columns of the terminal, at least 1.
    sentence : bool, optional
        Remove the end, not the middle.

    Examples
    --------
    >>> shortened("random_sample-0f3c9a17", 12), shortened("division by zero", 9, sentence=True)
    ('random…c9a17', 'division…')
    """
    if cell_len(text) <= width:
        return text
    if sentence:
        return set_cell_size(text, width - 1).rstrip() + "…"
    end = (width - 1) // 2
    tail = text[-end:] if end else ""
    while cell_len(tail) > end:
        tail = tail[1:]
    return set_cell_size(text, width - 1 - cell_len(tail)) + "…" + tail


@dataclass(frozen=True)
class Fit:
    """The columns that fit into a width.

    Attributes
    ----------
    widths : mapping of str to int
        Width of each shown column, in the order of the table.
    hidden : tuple of str
        Columns without space, in the order of the table.
    """

    widths: Mapping[str, int]
    hidden: tuple[str, ...]


def fit(
    columns: Mapping[str, bool],
    natural: Mapping[str, int],
    available: int,
    important: Sequence[str] = (),
) -> Fit:
    """Choose columns for a width, the most important first.

    Parameters
    ----------
    columns : mapping of str to bool
        Names of the columns, and whether their values are never shortened, as numbers and times.
    natural : mapping of str to int
        Width of each column with its head.
    available : int
        Width of the terminal.
    important : sequence of str, optional
        The most important columns first; others follow in their order.

    Examples
    --------
    >>> columns = {"key": False, "seconds": True, "worker": False}
    >>> fit(columns, {"key": 40, "seconds": 7, "worker": 20}, 36)
    Fit(widths={'key': 27, 'seconds': 7}, hidden=('worker',))
    """
    names = list(dict.fromkeys([*(n for n in important if n in columns), *columns]))
    least = {
        n: natural[n] if columns[n] else min(natural[n], max(_LEAST, cell_len(n))) for n in names
    }
    chosen: list[str] = []
    left = available + GAP
    for name in names:
        if not chosen or least[name] + GAP <= left:
            chosen.append(name)
            left -= least[name] + GAP
    widths = {n: least[n] for n in columns if n in chosen}
    left = max(0, left)
    for most in (_MOST, available):
        for name in (n for n in chosen if not columns[n]):
            more = min(left, max(0, min(natural[name], most) - widths[name]))
            widths[name] += more
            left -= more
    first = chosen[0]
    widths[first] = min(widths[first], available)
    return Fit(widths, tuple(n for n in columns if n not in widths))


def hidden_columns(without_space: Sequence[str], others: Sequence[str]) -> str:
    """Return a line about columns that are not shown; empty if there are none.

    Parameters
    ----------
    without_space : sequence of str
        Columns for which the terminal has no space, which are all named.
    others : sequence of str
        Columns that the table has only on demand.

    Examples
    --------
    >>> hidden_columns(["state"], ["life", "group"])
    'not shown: state, life, group (--wide, or --columns state,life)'
    """
    some = max(0, _NAMED - len(without_space))
    named = [*without_space, *others[:some]]
    if not named:
        return ""
    more = f", and {len(others) - some:,} more" if len(others) > some else ""
    return f"not shown: {', '.join(named)}{more} (--wide, or --columns {','.join(named[:2])})"


def is_sentence(name: str) -> bool:
    """Return whether a column has sentences, of which the start matters."""
    return name in _SENTENCES
