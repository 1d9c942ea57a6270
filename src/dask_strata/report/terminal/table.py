"""The console of all commands, and tables of plain values on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.report.words import number, visible

#: Width of the output without a terminal: lines that another program reads must not be wrapped.
_UNLIMITED = 100_000

#: Columns that users copy into the next command: their values are not wrapped.
_UNWRAPPED = ("key", "run")


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup, and wraps lines only on a terminal."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = _UNLIMITED
    return made


def print_table(columns: Mapping[str, bool], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Print a table, and a note below it.

    Without rows, only the note is printed, if there is one.

    Parameters
    ----------
    columns : mapping of str to bool
        Names of the columns, and whether they have numbers.
    rows : sequence of sequence of str
        The cells, each as `cell` returns it.
    note : str, optional
        The note.
    """
    out = console()
    if rows or not note:
        widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
        if sum(widths) + 2 * len(widths) <= out.width:
            _print_lines(columns, rows, widths, out)
        else:
            _print_wrapped(columns, rows, out)
    if note:
        out.print(Text(visible(note, keep_lines=True), style="dim"))


def _print_lines(
    columns: Mapping[str, bool], rows: Sequence[Sequence[str]], widths: Sequence[int], out: Console
) -> None:
    """Print a table that fits into the width: rich would take a second for 2,000 rows."""
    to_right = list(columns.values())

    def line(cells: Sequence[str]) -> str:
        padded = []
        for text, width, is_number in zip(cells, widths, to_right, strict=True):
            space = " " * (width - cell_len(text))
            padded.append(space + text if is_number else text + space)
        return "  ".join(padded)

    out.print(Text(line(list(columns)), style="bold"), no_wrap=True, overflow="ignore", crop=False)
    out.file.write("".join(f"{line(row)}\n" for row in rows))


def _print_wrapped(
    columns: Mapping[str, bool], rows: Sequence[Sequence[str]], out: Console
) -> None:
    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for name, is_number in columns.items():
        shown.add_column(
            Text(name),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=name in _UNWRAPPED,
        )
    for row in rows:
        shown.add_row(*map(Text, row))
    out.print(shown)


def cell(value: Any) -> str:
    r"""Return a plain value as the text of a cell, with control characters spelled out.

    >>> cell(3), cell(0.25), cell("a\tb")
    ('3', '0.25', 'a\\tb')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
