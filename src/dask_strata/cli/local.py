"""Commands that change a run need its folder, and neither a URL nor a bundle."""

from __future__ import annotations

from pathlib import Path

from dask_strata.errors import UsageError
from dask_strata.store.copies.place import is_url, local_path, shown
from dask_strata.store.zipped.copy import refuse_bundle


def require_folder(place: str, task: str) -> Path:
    """Return a place as a folder.

    Parameters
    ----------
    place : str
        A folder or URL, as the user named it.
    task : str
        What the command does with it, for the message.

    Raises
    ------
    UsageError
        It is a URL, or a bundle.
    """
    if is_url(place):
        raise UsageError(
            f"{shown(place)} is a URL: dask-strata cannot {task} there.",
            hint="Use a folder, then: dask-strata upload FOLDER URL",
        )
    path = local_path(place)
    refuse_bundle(path, task)
    return path
