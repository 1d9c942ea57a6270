"""The description of exported tables: facts of the run, notes, and the meaning of each column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from dask_strata.config import VERSION
from dask_strata.export.exporter import Job
from dask_strata.export.tabular.reading import export_schema
from dask_strata.run import Run
from dask_strata.schema import FORMAT_VERSION, TABLES

#: Names of the table with facts of the run and notes, and of that with all columns.
EXPORT, COLUMNS = "_export", "_columns"

#: File with the description of all tables and columns, in folders.
DESCRIPTION = "tables.json"

#: Units by the kinds of columns; other units are part of a column's definition.
_UNITS = {"seconds": "s", "bytes": "B"}


def facts(run: Run, job: Job, extra: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Return the rows of `_export`: names and values of facts of the run, and all notes."""
    manifest = run.manifest
    found: dict[str, str | None] = {
        "run": manifest.run_id,
        "name": run.name,
        "state": run.state,
        "created_ns": str(manifest.created_ns),
        "recorded_with": f"dask-strata {manifest.version}",
        "exported_with": f"dask-strata {VERSION}",
        "format_version": str(FORMAT_VERSION),
        "only_client": run.client or manifest.only_client,
        "times": "aligned to the scheduler's clock" if run.align else "on each process's own clock",
        **(extra or {}),
    }
    rows = [(name, value) for name, value in found.items() if value is not None]
    return rows + [("note", note) for note in job.notes]


def columns(table_name: str) -> list[dict[str, Any]]:
    """Return the description of each column of a table: name, kind, unit, meaning."""
    table = TABLES[table_name]
    kinds = {column.name: column for column in table.all_columns}
    found = []
    for field in export_schema(table):
        column = kinds.get(field.name)  # None for the type of a key
        found.append(
            {
                "name": field.name,
                "kind": "text" if column is None else column.kind,
                "unit": None if column is None else column.unit or _UNITS.get(column.kind),
                "meaning": field.metadata[b"meaning"].decode(),
            }
        )
    return found


def write_description(folder: Path, rows: Mapping[str, int], suffix: str, readme: str) -> None:
    """Write the files of a folder that describe its tables.

    Parameters
    ----------
    folder : Path
        The folder.
    rows : mapping of str to int
        Number of rows of each table.
    suffix : str
        End of the names of the tables' files.
    readme : str
        What a reader has to know about the format.
    """
    tables = {
        name: {
            "file": f"{name}{suffix}",
            "rows": n,
            "row": TABLES[name].row,
            "derived": TABLES[name].derived,
            "columns": columns(name),
        }
        for name, n in rows.items()
    }
    text = json.dumps(tables, indent=1, ensure_ascii=False) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")


def facts_table(run: Run, job: Job, extra: Mapping[str, str] | None = None) -> pa.Table:
    """Return the table `_export`."""
    rows = facts(run, job, extra)
    return pa.table(
        {
            "name": pa.array([name for name, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )
