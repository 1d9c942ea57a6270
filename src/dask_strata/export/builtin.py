"""The formats that dask-strata brings; the entry points in `pyproject.toml` name the same ones.

A format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from dask_strata.export.exporter import Exporter


def _wfformat() -> type[Exporter]:
    from dask_strata.export.wfformat.exporter import WfFormat

    return WfFormat


def _otlp() -> type[Exporter]:
    from dask_strata.export.telemetry.otlp.exporter import Otlp

    return Otlp


def _openmetrics() -> type[Exporter]:
    from dask_strata.export.telemetry.openmetrics.exporter import OpenMetrics

    return OpenMetrics


BUILTIN: dict[str, Callable[[], type[Exporter]]] = {
    "wfformat": _wfformat,
    "otlp": _otlp,
    "openmetrics": _openmetrics,
}
