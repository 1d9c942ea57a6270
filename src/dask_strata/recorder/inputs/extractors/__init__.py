"""What recognises inputs: a registry by the qualified name of a function or type.

Names rather than objects, so that no library is imported for it. An extractor is given
either a `Call` (its name is that of what a task calls: a function, or the type of a callable
object) or an object that stands among a task's arguments (its name is that of the object's
type, or of one of its bases). It yields one mapping for each input, with columns of the table
``claimed_inputs``: ``uri`` is needed, all others are optional. If it yields anything for a
call, the arguments of that call are not looked at any more.

Others add theirs with `register`, in the scheduler's process, or with an entry point in the
group ``dask_strata.extractors``, whose name is the qualified name::

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

_OURS: dict[str, Extractor] = {
    **arrays.EXTRACTORS,
    **bag.EXTRACTORS,
    **coffea.EXTRACTORS,
    **dataframe.EXTRACTORS,
    **uproot.EXTRACTORS,
}
_registered: dict[str, Extractor] = {}
_plugged: dict[str, EntryPoint] | None = None


def register(qualified_name: str, extractor: Extractor) -> None:
    """Have an extractor asked about calls of a function, or objects of a type.

    Parameters
    ----------
    qualified_name : str
        Module and name of the function or type, such as ``mylab.io.read_frames``.
    extractor : callable
        Takes the `Call` or the object, returns or yields a mapping for each input.

    Examples
    --------
    >>> def frames(call):
    ...     path, first, last = call.args
    ...     yield {"uri": path, "first": first, "last": last, "unit": "frames"}
    >>> register("mylab.io.read_frames", frames)
    """
    _registered[qualified_name] = extractor


def find(qualified_name: str) -> Extractor | None:
    """Return the extractor of a function or type: one that was registered comes first.

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
    return _OURS.get(qualified_name)


def _entry_points() -> dict[str, EntryPoint]:
    """Return what is installed; looked up once, nothing is imported for it."""
    global _plugged  # noqa: PLW0603  the environment of a process does not change
    if _plugged is None:
        try:
            _plugged = {point.name: point for point in entry_points(group=GROUP)}
        except Exception as error:  # noqa: BLE001  a package with damaged metadata is not ours
            logger.warning("dask-strata cannot list the entry points of %s: %s", GROUP, error)
            _plugged = {}
    return _plugged
