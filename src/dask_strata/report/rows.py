"""Rows of tables on a terminal and in files, in the formats registered below."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from dask_strata.errors import StrataError, UsageError
from dask_strata.report.formats import CSV, JSON, OF_ROWS, PARQUET, TABLE, register, write
from dask_strata.report.terminal.columns import TableView, cell, require_columns
from dask_strata.report.terminal.table import print_table
from dask_strata.report.words import escape_in_json, spreadsheet_text, visible
from dask_strata.run.table_view import microseconds
from dask_strata.store.parquet_writer import write_parquet

#: Kinds of columns with numbers.
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def write_rows(
    table: pa.Table,
    form: str,
    output: Path | None,
    note: str = "",
    view: TableView = TableView(),  # noqa: B008  it cannot be changed
) -> None:
    """Write rows to a file or standard output.

    Parameters
    ----------
    table : pa.Table
        The rows.
    form : str
        Name of the format, one of `FORMATS`.
    output : Path or None
        The file; None for standard output.
    note : str, optional
        A line below the table, where it is written to standard output.
    view : TableView, optional
        How the user wants to see the table.

    Raises
    ------
    UsageError
        The format is Parquet and there is no file, or a wanted column does not exist.
    StrataError
        The file cannot be written.
    """
    if view.columns:
        require_columns(view.columns, table.column_names)
        table = table.select(list(view.columns))
    try:
        if output is None:
            _to_stdout(table, form, note, view)
        else:
            write(table, form, output)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StrataError(f"{output} cannot be written: {error.strerror or error}.") from None


def print_json(text: str) -> None:
    """Write JSON to standard output; on a terminal, with control characters as its escapes.

    Parameters
    ----------
    text : str
        The JSON, without a line break at its end.
    """
    sys.stdout.write((escape_in_json(text) if sys.stdout.isatty() else text) + "\n")


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON to a file.

    Raises
    ------
    StrataError
        The file cannot be written.
    """
    try:
        # File names that are not valid Unicode can only be written as escapes.
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="ascii")
    except OSError as error:
        raise StrataError(f"{path} cannot be written: {error.strerror or error}.") from None


def _to_stdout(table: pa.Table, form: str, note: str, view: TableView) -> None:
    if form == "table":
        print_rows(table, note, view)
    elif form == "parquet":
        raise UsageError("Parquet is not for a terminal.", hint="Give a file: -o FILE.parquet")
    elif form == "csv":
        text = _csv(table)
        sys.stdout.write(visible(text, keep_lines=True) if sys.stdout.isatty() else text)
    else:
        print_json(_json(table))


def print_rows(
    table: pa.Table,
    note: str = "",
    view: TableView = TableView(),  # noqa: B008  it cannot be changed
) -> None:
    """Print rows as a table, with control characters spelled out, and a note below it.

    Without rows, only the note is printed, if there is one.
    """
    unique = _unique_names(table)
    columns = {
        field.name: any(is_kind(field.type) for is_kind in _NUMBERS) for field in unique.schema
    }
    print_table(columns, _rows_of(unique), note, replace(view, columns=()))


def _rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts of plain values and times."""
    return [
        {n: v if isinstance(v, datetime) else _plain(v) for n, v in row.items()}
        for row in microseconds(table).to_pylist()
    ]


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts of values that JSON can represent, with unique names.

    >>> plain_rows(pa.table({"n": [1, None]}))
    [{'n': 1}, {'n': None}]
    """
    rows = microseconds(_unique_names(table)).to_pylist()
    return [{n: _plain(v) for n, v in row.items()} for row in rows]


def _unique_names(table: pa.Table) -> pa.Table:
    names: list[str] = []
    for name in table.column_names:
        again = names.count(name)
        names.append(f"{name}_{again}" if again else name)
    return table.rename_columns(names)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, float) and value != value:  # noqa: PLR0124  NaN is not JSON
        return None
    if isinstance(value, Decimal):
        return _number(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _number(value: Decimal) -> int | float | str:
    """Return a decimal as a number; as a text if a number would have other digits.

    DuckDB has decimals for sums of integers and for literals such as 0.1.
    """
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _json(table: pa.Table) -> str:
    return json.dumps(plain_rows(table), ensure_ascii=False, indent=1)


def _csv(table: pa.Table) -> str:
    import csv

    lines: list[str] = []
    # The writer quotes the characters of its line ending only: a lone return would end a row.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerow(map(spreadsheet_text, table.column_names))
    for row in plain_rows(table):
        writer.writerow(map(_csv_cell, row.values()))
    return "".join(f"{line[:-2]}\n" for line in lines)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return spreadsheet_text(value) if isinstance(value, str) else value


def _text_file(render: Callable[[pa.Table], str]) -> Callable[[pa.Table, Path], None]:
    def write_text(table: pa.Table, path: Path) -> None:
        path.write_text(render(table), encoding="utf-8", newline="")

    return write_text


def _plain_table(table: pa.Table) -> str:
    names = table.column_names
    rows = [[cell(v) for v in row.values()] for row in plain_rows(table)]
    widths = [max(map(len, cells)) for cells in zip(names, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (names, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


register(pa.Table, TABLE, _text_file(_plain_table))
register(pa.Table, CSV, _text_file(_csv))
register(pa.Table, JSON, _text_file(lambda table: f"{_json(table)}\n"))
register(pa.Table, PARQUET, write_parquet)

#: Names of the formats that rows can be written in, for command lines.
FORMATS = tuple(output_format.name for output_format in OF_ROWS)
