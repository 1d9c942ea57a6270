"""Tables for people and for other programs: a terminal, CSV, JSON, Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dask_strata.errors import StrataError, UsageError
from dask_strata.report.words import visible
from dask_strata.run.table_view import microseconds
from dask_strata.store.compact import write_parquet

#: Width where there is no terminal: nothing is wrapped that another program reads.
_UNLIMITED = 100_000

FORMATS = ("table", "csv", "json", "parquet")


#: Columns that are copied into the next command.
_WHOLE = ("key", "run")


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup, and is wide where there is no terminal."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = _UNLIMITED
    return made


def write_rows(table: pa.Table, form: str, output: Path | None, note: str = "") -> None:
    """Write rows in one of `FORMATS`, to a file or standard output.

    Raises
    ------
    UsageError
        Parquet was to be written to a terminal.
    StrataError
        The file cannot be written.
    """
    try:
        if output is None:
            _to_stdout(table, form, note)
        else:
            _WRITERS[form](table, output)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StrataError(f"{output} cannot be written: {error.strerror or error}.") from None


def write_json(value: Any, path: Path) -> None:
    """Write something as JSON to a file.

    Raises
    ------
    StrataError
        The file cannot be written.
    """
    try:
        # Names of files may be no text: those JSON can only spell out.
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="ascii")
    except OSError as error:
        raise StrataError(f"{path} cannot be written: {error.strerror or error}.") from None


def _to_stdout(table: pa.Table, form: str, note: str) -> None:
    if form == "table":
        print_rows(table, note)
    elif form == "parquet":
        raise UsageError("Parquet is not for a terminal.", hint="Give a file: -o FILE.parquet")
    elif form == "csv":
        sys.stdout.write(_csv(table))
    else:
        sys.stdout.write(_json(table))


def print_rows(table: pa.Table, note: str = "") -> None:
    """Print rows as a table; what would steer the terminal is spelled out."""
    out = console()
    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for field in table.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(
            Text(field.name),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=field.name in _WHOLE,
        )
    for row in plain_rows(table):
        shown.add_row(*(Text(_cell(value)) for value in row.values()))
    out.print(shown)
    if note:
        out.print(Text(note, style="dim"))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as plain values that JSON has, with unique names."""
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
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _json(table: pa.Table) -> str:
    return json.dumps(plain_rows(table), ensure_ascii=False, indent=1) + "\n"


def _csv(table: pa.Table) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in plain_rows(table):
        writer.writerow(
            [
                json.dumps(v, ensure_ascii=False) if isinstance(v, (list, dict)) else v
                for v in row.values()
            ]
        )
    return text.getvalue()


def _text_file(render: Callable[[pa.Table], str]) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        path.write_text(render(table), encoding="utf-8", newline="")

    return write


def _plain_table(table: pa.Table) -> str:
    names = table.column_names
    rows = [[_cell(v) for v in row.values()] for row in plain_rows(table)]
    widths = [max(map(len, cells)) for cells in zip(names, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (names, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "table": _text_file(_plain_table),
    "csv": _text_file(_csv),
    "json": _text_file(_json),
    "parquet": write_parquet,
}
