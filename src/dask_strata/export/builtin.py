"""The formats that dask-strata brings; the entry points in `pyproject.toml` name the same ones.

A format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from dask_strata.export.exporter import Exporter

BUILTIN: dict[str, Callable[[], type[Exporter]]] = {}
