"""The metadata map, on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.analysis.map import STEPS, Cell

#: Columns of a terminal below which step, layer and level are lines of one column.
_NARROW = 80


def print_map(cells: Sequence[Cell], out: Console) -> None:
    """Print the metadata map with its row counts.

    Parameters
    ----------
    cells : sequence of Cell
        The cells of the map.
    out : Console
        The console.
    """
    table = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    names = ("step", "layer", "level")
    narrow = out.width < _NARROW
    for name in ("\n".join(names),) if narrow else names:
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("in tables", overflow="fold")
    for cell in cells:
        by_choice = cell.by_choice if not cell.total else None
        style = "" if cell.total or by_choice else "bold red"
        place = (f"{cell.step} {STEPS[cell.step]}", cell.layer, cell.level)
        table.add_row(
            *(("\n".join(place),) if narrow else place),
            Text(f"{cell.total:,}", style=style),
            Text(f"recorded only with: {by_choice}", style="dim") if by_choice else _tables(cell),
        )
    out.print(table)


def _tables(cell: Cell) -> Group:
    """Return the tables with rows, and those without."""
    filled = ", ".join(_in_table(cell, name, n) for name, n in cell.rows.items() if n)
    empty = ", ".join(name for name, n in cell.rows.items() if not n)
    return Group(
        *([Text(filled)] if filled else []),
        *([Text(f"empty: {empty}", style="dim")] if empty else []),
    )


def _in_table(cell: Cell, name: str, n: int) -> str:
    return f"{name} {n:,}" + (" (imported)" if name in cell.imported else "")


def map_json(cells: Sequence[Cell]) -> str:
    """Return the metadata map as JSON.

    Parameters
    ----------
    cells : sequence of Cell
        The cells of the map.
    """
    return json.dumps([{**asdict(cell), "total": cell.total} for cell in cells], indent=1)
