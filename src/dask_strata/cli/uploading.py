"""The common part of `record` and `upload`: upload a run whole, and remove its spool."""

from __future__ import annotations

import time
from pathlib import Path

from dask_strata.analysis.list import row_json
from dask_strata.errors import StrataError
from dask_strata.run import open_run
from dask_strata.store.copies.place import RemotePlace
from dask_strata.store.copies.remote_runs import ROW
from dask_strata.store.copies.upload import Upload, noted_destination, remove_spool, upload_run
from dask_strata.store.segments.read import segment_state


def wait_for_last_rows(folder: Path, seconds: float) -> int:
    """Wait until no process writes to a run; return the number of those that still do.

    Parameters
    ----------
    folder : Path
        The run's folder.
    seconds : float
        Longest time to wait.
    """
    deadline = time.monotonic() + seconds
    while True:
        segments = open_run(folder).segments
        writing = sum(segment_state(segment) == "recording" for segment in segments)
        if not writing or time.monotonic() > deadline:
            return writing
        time.sleep(0.2)


def finish_upload(folder: Path, url: str, seconds: float | None) -> Upload:
    """Upload a run whole; remove its folder afterwards if it was only spooled.

    Parameters
    ----------
    folder : Path
        The run's folder.
    url : str
        The run's URL.
    seconds : float or None
        Longest time to wait for processes that still write; None for a copy, to which no process
        writes.

    Raises
    ------
    StrataError
        The folder is not a run, the place cannot be written, or processes still write.
    """
    place = RemotePlace(url)
    writing = 0 if seconds is None else wait_for_last_rows(folder, seconds)
    row = row_json(folder)
    done = upload_run(folder, place, {} if row is None else {ROW: row})
    if writing:
        raise StrataError(
            f"Processes still write to {folder} ({writing:,}): only the rows until "
            "now are uploaded.",
            hint="Repeat the command when they have ended.",
        )
    if noted_destination(folder) == url:
        remove_spool(folder)
    return done
