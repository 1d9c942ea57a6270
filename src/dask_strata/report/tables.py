"""Tables and columns of the schema as text, for the terminal and the documentation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dask_strata import config, schema
from dask_strata.config import SETTINGS
from dask_strata.errors import UsageError, suggestion
from dask_strata.schema import TABLES, Table

#: Section of the documentation about Parquet, with its examples.
_PARQUET = Path(__file__).with_name("reading_parquet.md")

#: Its name also where it is run as `__main__`.
_THIS_MODULE = __spec__.name


def schema_text(name: str | None = None) -> str:
    """Return the names of all tables, or the columns of one table.

    Parameters
    ----------
    name : str, optional
        Name of a table; by default all tables, one per line.

    Raises
    ------
    UsageError
        There is no such table.
    """
    if name is None:
        width = max(map(len, TABLES))
        lines = [f"{t.name:<{width}}  one row per {t.row}" for t in TABLES.values()]
        return "\n".join([*lines, "", "Columns of a table: dask-strata tables TABLE"])
    if name not in TABLES:
        raise UsageError(
            f"There is no table {name}.",
            hint=f"{suggestion(name, TABLES)}There are: {', '.join(TABLES)}",
        )
    table = TABLES[name]
    rows = column_rows(table)
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]
    return "\n".join([f"{table.name}: one row per {table.row}", "", *lines])


def column_rows(table: Table) -> list[tuple[str, str, str]]:
    """Return name, kind and meaning of each column of a table.

    Parameters
    ----------
    table : Table
        The table. A key has a second row, for the column of its type.
    """
    rows: list[tuple[str, str, str]] = []
    for column in table.all_columns:
        unit = f" ({column.unit})" if column.unit else ""
        rows.append((column.name, column.kind, f"{column.meaning}{unit}"))
        if column.kind == "key":
            rows.append(
                (f"{column.name}_type", "text", f"type of the Python object behind {column.name}")
            )
    return rows


def schema_markdown() -> str:
    """Return the page about all tables for the documentation, in Markdown."""
    parts = [
        "# Tables of a run",
        "",
        f"Made from `{schema.__name__}` by `python -m {_THIS_MODULE}`. Pandas, Polars, DuckDB and",
        "Dask read the tables of a compacted run:",
        "[Reading the Parquet without dask-strata](#reading-the-parquet-without-dask-strata).",
        "",
    ]
    for table in TABLES.values():
        kind = "derived on reading" if table.derived else "recorded"
        parts += [
            f"## {table.name}",
            "",
            f"One row per {table.row}. Step {table.step}, {table.layer}, {table.level}; {kind}.",
            "",
            "| column | kind | meaning |",
            "|---|---|---|",
            *(
                f"| `{a}` | {b} | {c.replace('|', chr(92) + '|')} |"
                for a, b, c in column_rows(table)
            ),
            "",
        ]
    parts.append(_PARQUET.read_text(encoding="utf-8"))
    return "\n".join(parts)


def settings_markdown() -> str:
    """Return the page about all settings for the documentation, in Markdown."""
    lines = [
        "# Settings",
        "",
        f"Made from `{config.__name__}` by `python -m {_THIS_MODULE} settings`.",
        "",
        "They stand under `dask_strata` in Dask's configuration: in a YAML file, as variables",
        "(`DASK_DASK_STRATA__FLUSH_INTERVAL=50ms`, `DASK_DASK_STRATA__YAPPI__CLOCK=cpu`), with",
        "`dask.config.set`, as options of `dask-strata record` or as keywords of",
        '`dask_strata.record` (`yappi_clock="cpu"`). Unknown settings are named.',
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{s.name}` | `{_default(s.default)}` | {s.meaning} |" for s in SETTINGS]
    return "\n".join([*lines, ""])


def _default(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    page = settings_markdown() if "settings" in sys.argv[1:] else schema_markdown()
    sys.stdout.write(page)
