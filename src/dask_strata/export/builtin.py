"""The formats that dask-strata brings; the entry points in `pyproject.toml` name the same ones.

A format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from dask_strata.export.exporter import Exporter


def _prov() -> type[Exporter]:
    from dask_strata.export.provenance.prov import Prov

    return Prov


def _parquet() -> type[Exporter]:
    from dask_strata.export.tabular.parquet_files import ParquetFiles

    return ParquetFiles


def _csv() -> type[Exporter]:
    from dask_strata.export.tabular.csv_files import CsvFiles

    return CsvFiles


def _sqlite() -> type[Exporter]:
    from dask_strata.export.tabular.sqlite_file import SqliteFile

    return SqliteFile


def _duckdb() -> type[Exporter]:
    from dask_strata.export.tabular.duckdb_file import DuckdbFile

    return DuckdbFile


def _bundle() -> type[Exporter]:
    from dask_strata.export.bundle.exporter import Bundle

    return Bundle


BUILTIN: dict[str, Callable[[], type[Exporter]]] = {
    "prov": _prov,
    "parquet": _parquet,
    "csv": _csv,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "bundle": _bundle,
}
