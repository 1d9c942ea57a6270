"""The formats that a run can be exported to: dask-strata's own, and those of other packages.

A package adds a format with an entry point in the group ``dask_strata.exporters`` whose value is a
class that derives from `Exporter`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from dask_strata.errors import StrataError, UsageError
from dask_strata.export.builtin import BUILTIN
from dask_strata.export.exporter import Exporter

#: Group of the entry points.
GROUP = "dask_strata.exporters"


def names() -> list[str]:
    """Return the names of all formats: dask-strata's own in their order, then others."""
    others = {point.name for point in entry_points(group=GROUP)} - BUILTIN.keys()
    return [*BUILTIN, *sorted(others)]


def exporter(name: str) -> Exporter:
    """Return the exporter of a format.

    Raises
    ------
    UsageError
        There is no such format.
    StrataError
        The package that brings the format is broken.
    """
    if name in BUILTIN:
        return BUILTIN[name]()()
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _from_elsewhere(name, point)
    raise UsageError(f"There is no format {name!r}.", hint=f"Choose one of: {', '.join(names())}")


def exporters() -> dict[str, Exporter]:
    """Return all exporters by name; formats that cannot be imported are left out."""
    found = {}
    for name in names():
        try:
            found[name] = exporter(name)
        except StrataError:
            continue
    return found


def _from_elsewhere(name: str, point: object) -> Exporter:
    try:
        found = point.load()()  # type: ignore[attr-defined]  # an entry point
    except Exception as error:  # a package of others may fail in any way
        raise StrataError(
            f"The format {name!r} cannot be used: {type(error).__name__}: {error}.",
            hint=f"It is the entry point {getattr(point, 'value', '')!r} of another package.",
        ) from error
    if not isinstance(found, Exporter):
        raise StrataError(
            f"The format {name!r} cannot be used: {getattr(point, 'value', '')} is no Exporter."
        )
    return found
