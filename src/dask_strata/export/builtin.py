"""The formats that dask-strata brings; the entry points in `pyproject.toml` name the same ones.

A format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from dask_strata.export.exporter import Exporter


def _perfetto() -> type[Exporter]:
    from dask_strata.export.perfetto.exporter import Perfetto

    return Perfetto


def _chrome() -> type[Exporter]:
    from dask_strata.export.perfetto.exporter import Chrome

    return Chrome


def _ro_crate() -> type[Exporter]:
    from dask_strata.export.provenance.ro_crate import RoCrate

    return RoCrate


def _prov() -> type[Exporter]:
    from dask_strata.export.provenance.prov import Prov

    return Prov


def _wfformat() -> type[Exporter]:
    from dask_strata.export.wfformat.exporter import WfFormat

    return WfFormat


def _otlp() -> type[Exporter]:
    from dask_strata.export.telemetry.otlp.exporter import Otlp

    return Otlp


def _openmetrics() -> type[Exporter]:
    from dask_strata.export.telemetry.openmetrics.exporter import OpenMetrics

    return OpenMetrics


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
    "perfetto": _perfetto,
    "chrome": _chrome,
    "ro-crate": _ro_crate,
    "prov": _prov,
    "wfformat": _wfformat,
    "otlp": _otlp,
    "openmetrics": _openmetrics,
    "parquet": _parquet,
    "csv": _csv,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "bundle": _bundle,
}
