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


BUILTIN: dict[str, Callable[[], type[Exporter]]] = {"perfetto": _perfetto, "chrome": _chrome}
