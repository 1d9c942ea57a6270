"""The formats that dask-strata brings; the entry points in `pyproject.toml` name the same ones.

A format is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from dask_strata.export.exporter import Exporter


def _ro_crate() -> type[Exporter]:
    from dask_strata.export.provenance.ro_crate import RoCrate

    return RoCrate


def _prov() -> type[Exporter]:
    from dask_strata.export.provenance.prov import Prov

    return Prov


BUILTIN: dict[str, Callable[[], type[Exporter]]] = {"ro-crate": _ro_crate, "prov": _prov}
