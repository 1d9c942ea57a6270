"""All tables of a run as a folder of CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import csv

from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.tabular.description import EXPORT, facts_table, write_description
from dask_strata.export.tabular.reading import TablesInParts
from dask_strata.export.tabular.texts import guarded_column, json_lists
from dask_strata.run import Run

_README = """# Tables of a run

Each file is one table in CSV: UTF-8, commas, names of columns in the first line. `tables.json`
describes all tables and columns. `_export.csv` has facts of the run, and notes on what is missing.

- Texts are in double quotes. An unknown value is an empty cell without quotes, an empty text is
  `""`. A text may contain line breaks and any other character.
- A text that a spreadsheet could take for a formula has an apostrophe in front. To restore all
  texts, remove the first apostrophe of each cell that consists of one or more apostrophes and then
  `=`, `+`, `-`, `@`, a tab, a line break, or the full-width form of one of the first four.
- Times are in UTC with nanoseconds: `2026-11-18 11:06:40.123456789Z`.
- Phases of an attempt (`startstops`) are JSON; their times are nanoseconds since 1970 in UTC.
"""


class CsvFiles(Exporter):
    """All tables as CSV, a file for each."""

    name: ClassVar[str] = "csv"
    summary: ClassVar[str] = "all tables as CSV: spreadsheets, R, anything"
    suffix: ClassVar[str] = ""

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a folder with a file for each table; see `Exporter.write`."""
        path.mkdir()
        tables = TablesInParts(run, job)
        for name, schema, batches in tables:
            shown = _schema(schema)
            with csv.CSVWriter(path / f"{name}.csv", shown) as writer:
                for batch in batches:
                    writer.write_batch(_batch(batch, shown))
        facts = facts_table(run, job, {"times_in_csv": "text, UTC, with nanoseconds"})
        csv.write_csv(pa.Table.from_batches([_batch(b, facts.schema) for b in facts.to_batches()]),
                      path / f"{EXPORT}.csv")  # fmt: skip
        write_description(path, tables.rows, ".csv", _README)


def _schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [f.with_type(pa.string()) if pa.types.is_nested(f.type) else f for f in schema]
    )


def _batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column in batch.columns:
        if pa.types.is_nested(column.type):
            columns.append(json_lists(column))
        elif pa.types.is_string(column.type):
            columns.append(guarded_column(column))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
