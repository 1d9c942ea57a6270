"""Tables of texts on a terminal: what does not fit is left out by column, and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.report.terminal.columns import fit, shortened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def print_texts(
    columns: Mapping[str, bool],
    rows: Sequence[Sequence[str | Text]],
    out: Console,
    important: Sequence[str] = (),
    indent: int = 0,
) -> None:
    """Print a table of texts, a line each row.

    Columns are chosen for the width of the console, and numbers are never shortened. A line below
    the table names the columns that are left out.

    Parameters
    ----------
    columns : mapping of str to bool
        Names of the columns, and whether they have numbers, which are on the right.
    rows : sequence of sequence of str or Text
        The texts of each row.
    out : Console
        The console.
    important : sequence of str, optional
        Columns to keep where there is no space for all, most important first.
    indent : int, optional
        Space before each row, below the head.
    """
    names = list(columns)
    texts = [list(map(_text, row)) for row in rows]
    natural = {
        name: max([cell_len(name), *(row[i].cell_len for row in texts)])
        for i, name in enumerate(names)
    }
    chosen = fit(columns, natural, out.width - indent, important)
    table = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for i, (name, width) in enumerate(chosen.widths.items()):
        space = 0 if i else indent
        table.add_column(
            Text(shortened(name, width)),
            justify="right" if columns[name] else "left",
            no_wrap=True,
            width=width + space,
        )
    at = {name: names.index(name) for name in chosen.widths}
    for row in texts:
        cells = [_cell(row[at[name]], width) for name, width in chosen.widths.items()]
        if indent and not columns[next(iter(at))]:
            cells[0] = Text(" " * indent) + cells[0]
        table.add_row(*cells)
    out.print(table)
    if chosen.hidden:
        hidden = f"not shown: {', '.join(chosen.hidden)} (the terminal is too narrow)"
        out.print(Text(hidden, style="dim"))


def print_fitted(table: RichTable, out: Console, important: Sequence[str] = ()) -> None:
    """Print a table of rich like `print_texts`; its columns on the right have numbers.

    Parameters
    ----------
    table : RichTable
        The table, with names and texts in its cells.
    out : Console
        The console.
    important : sequence of str, optional
        Columns to keep where there is no space for all, most important first.
    """
    columns = {str(column.header): column.justify == "right" for column in table.columns}
    rows = zip(*(map(_text, column.cells) for column in table.columns), strict=True)
    print_texts(columns, list(rows), out, important)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _cell(text: Text, width: int) -> Text:
    """Return a text that is at most so wide, in its style."""
    if text.cell_len <= width:
        return text
    style = text.spans[0].style if text.spans else text.style
    return Text(shortened(text.plain, width), style)
