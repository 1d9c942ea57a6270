"""The line of `dask-strata record` about the stream to which a run is sent."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.brokers.address import parse_address
from dask_strata.errors import StrataError
from dask_strata.report.words import count, visible
from dask_strata.store.manifest import Manifest
from dask_strata.stream.recorded import LAUNCHER
from dask_strata.stream.sender import send
from dask_strata.stream.state import SenderFiles, Status

if TYPE_CHECKING:
    from rich.console import Console

#: Longest wait for the last rows, if the broker is there.
_WAIT_SECONDS = 5.0


def print_sending(folder: Path, url: str, err: Console) -> None:
    """Print whether a run has been sent to its stream, and otherwise the next step.

    Parameters
    ----------
    folder : Path
        The run's folder.
    url : str
        Address of the stream.
    err : Console
        Console for messages.
    """
    address = str(parse_address(url))
    try:
        status = _status(folder, address)
    except StrataError as error:
        err.print(f"dask-strata: {visible(error.message)}", soft_wrap=True, markup=False)
        return
    if status.done and not any(process.startswith(LAUNCHER) for process in status.next_seqs):
        # The script went on for long after its cluster: its exit status was recorded just now.
        try:
            send(folder, url, give_up_seconds=_WAIT_SECONDS)
            status = _status(folder, address)
        except StrataError as error:
            status.done, status.error = False, error.message
    if status.done:
        text = f"{count(status.rows, 'row')} sent to {address}"
    else:
        reason = status.error or "The last rows are still being sent."
        text = (
            f"not all rows are in the stream {address} yet. {reason} A process in the background "
            "tries for another minute; then continue with: "
            f"dask-strata stream {shlex.quote(str(folder))} URL"
        )
    err.print(f"dask-strata: {visible(text)}", soft_wrap=True, markup=False)


def _status(folder: Path, address: str) -> Status:
    """Return the state of the sender when it is done or has an error, or else after some time."""
    files = SenderFiles(folder, Manifest.read(folder).run_id, address)
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        status = files.read()
        if status.done or status.error or time.monotonic() > until:
            return status
        time.sleep(0.05)
