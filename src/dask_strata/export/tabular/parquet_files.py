"""All tables of a run as a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.tabular.description import EXPORT, facts_table, write_description
from dask_strata.export.tabular.reading import TablesInParts
from dask_strata.run import Run
from dask_strata.schema import TABLES
from dask_strata.store.key_texts import key_columns
from dask_strata.store.parquet_writer import parquet_options

_LEVEL = 3

_README = """# Tables of a run

Each file is one table; `tables.json` describes all tables and columns. The metadata of each field
in a file has the meaning and the unit of the column. Times are in nanoseconds, in UTC. An unknown
value is null. `_export.parquet` has facts of the run, and notes on what is missing.
"""


class ParquetFiles(Exporter):
    """All tables as Parquet, a file for each."""

    name: ClassVar[str] = "parquet"
    summary: ClassVar[str] = "all tables as Parquet: pandas, Polars, DuckDB, Spark"
    suffix: ClassVar[str] = ""

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write a folder with a file for each table; see `Exporter.write`."""
        path.mkdir()
        tables = TablesInParts(run, job)
        for name, schema, batches in tables:
            options = _options(name, schema)
            with pq.ParquetWriter(path / f"{name}.parquet", schema, **options) as writer:
                for batch in batches:
                    writer.write_batch(batch, row_group_size=len(batch))
        pq.write_table(facts_table(run, job), path / f"{EXPORT}.parquet")
        write_description(path, tables.rows, ".parquet", _README)


def _options(name: str, schema: pa.Schema) -> dict[str, Any]:
    """Return the options of the writer: texts of keys are too different for a dictionary."""
    options = parquet_options(schema, _LEVEL)
    keys = key_columns(TABLES[name])
    options["use_dictionary"] = [each for each in options["use_dictionary"] if each not in keys]
    return options
