"""Commands that change a run need its folder, and not a URL."""

from __future__ import annotations

from pathlib import Path

from dask_strata.errors import UsageError
from dask_strata.store.copies.place import is_url, local_path, shown


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
        It is a URL.
    """
    if is_url(place):
        raise UsageError(
            f"{shown(place)} is a URL: dask-strata cannot {task} there.",
            hint="Use a folder, then: dask-strata upload FOLDER URL",
        )
    return local_path(place)
