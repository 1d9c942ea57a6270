"""The console of all commands, and tables of plain values on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dask_strata.report.terminal.columns import (
    GAP,
    TableView,
    cell,
    exact,
    fit,
    hidden_columns,
    human,
    is_sentence,
    require_columns,
    shortened,
)
from dask_strata.report.words import visible

#: Width of the output without a terminal: lines that another program reads must not be wrapped.
_UNLIMITED = 100_000


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup, and wraps lines only on a terminal."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = _UNLIMITED
    return made


def print_table(
    columns: Mapping[str, bool],
    rows: Sequence[Mapping[str, Any]],
    note: str = "",
    view: TableView = TableView(),  # noqa: B008  it cannot be changed
) -> None:
    """Print a table, and a note below it.

    On a terminal, columns are chosen for its width; any other output has exact values between tabs,
    and the note is on standard error. Without rows, only the note is printed, if there is one.

    Parameters
    ----------
    columns : mapping of str to bool
        Names of the columns, and whether they have numbers.
    rows : sequence of mapping
        Plain values by the name of the column.
    note : str, optional
        The note.
    view : TableView, optional
        How the user wants to see the table.

    Raises
    ------
    UsageError
        A wanted column does not exist.
    """
    require_columns(view.columns, columns)
    columns = {name: columns[name] for name in view.columns or columns}
    out = console()
    if not out.is_terminal:
        _print_tabs(columns, rows, out)
        if note:
            console(stderr=True).print(Text(visible(note, keep_lines=True)))
        return
    hidden = ""
    if rows or not note:
        without_space = _print_fitted(columns, rows, out, view)
        hidden = hidden_columns(without_space, () if view.has_all else view.others)
    if note:  # the terminal wraps it: a command in it can be copied
        out.print(Text(visible(note, keep_lines=True), style="dim"), soft_wrap=True)
    if hidden:
        out.print(Text(visible(hidden), style="dim"))


def _print_tabs(
    columns: Mapping[str, bool], rows: Sequence[Mapping[str, Any]], out: Console
) -> None:
    """Print exact values between tabs, which no value contains: they are escaped."""
    out.file.write("\t".join(map(cell, columns)) + "\n")
    out.file.writelines("\t".join(exact(row[n]) for n in columns) + "\n" for row in rows)


def _most_important(
    columns: Mapping[str, bool], rows: Sequence[Mapping[str, Any]], view: TableView
) -> list[str]:
    """Return the columns in the order of their importance; those without any value are last."""
    order = dict.fromkeys([*(n for n in view.important if n in columns), *columns])
    filled = {name: any(row[name] is not None for row in rows) for name in order}
    return sorted(order, key=lambda name: not filled[name])


def _print_fitted(
    columns: Mapping[str, bool],
    rows: Sequence[Mapping[str, Any]],
    out: Console,
    view: TableView,
) -> Sequence[str]:
    """Print the columns for which there is space; return the names of the others."""
    shown = (lambda _, value: exact(value)) if view.raw else human
    cells = {n: [shown(n, row[n]) or "–" for row in rows] for n in columns}
    natural = {n: max(map(cell_len, [cell(n), *texts])) for n, texts in cells.items()}
    widths: Mapping[str, int] = natural
    hidden: Sequence[str] = ()
    if not view.wide:
        whole = {n: columns[n] or any(isinstance(r[n], datetime) for r in rows) for n in columns}
        found = fit(whole, natural, out.width, _most_important(columns, rows, view))
        widths, hidden = found.widths, found.hidden

    def padded(name: str, text: str) -> str:
        text = shortened(text, widths[name], sentence=is_sentence(name))
        space = " " * (widths[name] - cell_len(text))
        return space + text if columns[name] else text + space

    def line(texts: Sequence[str]) -> str:
        return (" " * GAP).join(map(padded, widths, texts)).rstrip()

    out.print(
        Text(line([cell(n) for n in widths]), style="bold"),
        no_wrap=True,
        overflow="ignore",
        crop=False,
    )
    # rich would take a second for 2,000 rows.
    by_row = zip(*(cells[n] for n in widths), strict=True)
    out.file.write("".join(f"{line(texts)}\n" for texts in by_row))
    return hidden
