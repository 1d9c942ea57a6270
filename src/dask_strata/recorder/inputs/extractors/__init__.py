"""Extractors: functions that find inputs, by the qualified name of a function or type.

The registry has names instead of objects, so that it imports no library. An extractor gets one of
two things: a `Call`, if it is registered for the called function or the type of a called object;
or an object among a task's arguments, if it is registered for its type or one of its bases. It
yields one mapping per input, with columns of the table ``claimed_inputs``: ``uri`` is required, all
others are optional. If it yields anything for a call, the arguments of that call are not searched
further.

Users add an extractor with `register`, in the scheduler's process; packages add one with an entry
point in the group ``dask_strata.extractors``, whose name is the qualified name::

    [project.entry-points."dask_strata.extractors"]
    "mylab.io.read_frames" = "mylab.strata:frames"
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dask_strata.recorder.inputs.extractors import arrays, bag, coffea, dataframe, uproot

logger = logging.getLogger("dask_strata")

Extractor = Callable[[Any], Iterable[Mapping[str, Any]]]

#: Group of entry points that add extractors.
GROUP = "dask_strata.extractors"

_BUILT_IN: dict[str, Extractor] = {
    **arrays.EXTRACTORS,
    **bag.EXTRACTORS,
    **coffea.EXTRACTORS,
    **dataframe.EXTRACTORS,
    **uproot.EXTRACTORS,
}
_registered: dict[str, Extractor] = {}
_installed: dict[str, EntryPoint] | None = None


def register(qualified_name: str, extractor: Extractor) -> None:
    """Register an extractor for calls of a function, or for objects of a type.

    Parameters
    ----------
    qualified_name : str
        Module and name of the function or type, such as ``mylab.io.read_frames``.
    extractor : callable
        Takes the `Call` or the object, and returns or yields a mapping for each input.

    Examples
    --------
    >>> def frames(call):
    ...     path, first, last = call.args
    ...     yield {"uri": path, "first": first, "last": last, "unit": "frames"}
    >>> register("mylab.io.read_frames", frames)
    """
    _registered[qualified_name] = extractor


def find(qualified_name: str) -> Extractor | None:
    """Return the extractor for a function or type; None without one.

    Registered extractors take precedence over entry points, and these over built-in ones.

    Parameters
    ----------
    qualified_name : str
        Module and name of the function or type.

    Raises
    ------
    Exception
        The entry point of this name cannot be loaded.
    """
    found = _registered.get(qualified_name)
    if found is not None:
        return found
    point = _entry_points().get(qualified_name)
    if point is not None:
        _registered[qualified_name] = extractor = point.load()
        return extractor  # type: ignore[no-any-return]
    return _BUILT_IN.get(qualified_name)


def _entry_points() -> dict[str, EntryPoint]:
    """Return the installed entry points by name, without importing them; look them up once."""
    global _installed  # noqa: PLW0603  a cache: the environment of a process does not change
    if _installed is None:
        try:
            _installed = {point.name: point for point in entry_points(group=GROUP)}
        except Exception as error:  # noqa: BLE001  damaged metadata of another package
            logger.warning(
                "dask-strata uses no extractors of other packages: cannot list the entry points "
                "of %s: %s",
                GROUP,
                error,
            )
            _installed = {}
    return _installed
