"""Uploading a run while it is recorded, if its place is a URL.

The run is spooled in a local folder. A thread of the scheduler's process uploads new bytes at
each interval; Dask's event loop never waits for it. At the end a process of its own uploads the
files whole, and removes the spool: it also works while this process exits, and waits for the last
rows of workers that end after the scheduler.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from dask_strata.config import Settings
from dask_strata.errors import RecordingError, StrataError
from dask_strata.recorder.pipeline.resource_usage import own_io
from dask_strata.store.copies.place import RemotePlace, is_url, shown
from dask_strata.store.copies.upload import (
    SPOOL_PREFIX,
    GrowingUpload,
    begin_upload,
    note_destination,
)

logger = logging.getLogger("dask_strata")

#: Longest wait for the answer of a place before a recording starts.
_START_SECONDS = 60

#: Longest time between two tries to upload.
_LONGEST_PAUSE = 60.0

#: Longest wait for the upload at the end of the process, and of a recording that is detached.
_EXIT_SECONDS = 120
_DETACH_SECONDS = 20


def session_spool(settings: Settings) -> Path:
    """Return a new folder for the runs of one `dask-strata record`, which uploads them itself."""
    return _new_folder(settings.spool, f"{settings.session}-")


def _new_folder(base: str | None, prefix: str) -> Path:
    import dask

    base = base or dask.config.get("temporary-directory", default=None)
    if base is not None:
        Path(base).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{SPOOL_PREFIX}{prefix}", dir=base)).absolute()


def folder_of_session(settings: Settings) -> Path | None:
    """Return the folder in which `dask-strata record` finds runs; None if it runs elsewhere."""
    if not is_url(settings.runs):
        return Path(settings.runs)
    spool, session = settings.spool, settings.session
    if not spool or not session or session not in Path(spool).name or not Path(spool).is_dir():
        return None
    return Path(spool)


def spool_folder(settings: Settings, name: str) -> Path:
    """Return the folder of a run on this machine until it is uploaded.

    Parameters
    ----------
    settings : Settings
        Settings of the recording, whose place is a URL.
    name : str
        Name of the run's folder.
    """
    of_session = folder_of_session(settings)
    if of_session is not None:
        return of_session / name
    ours = settings.session is None or settings.session not in Path(settings.spool or "").name
    return _new_folder(settings.spool if ours else None, "") / name


class UploadThread:
    """Uploads one run from the scheduler's process; never raises.

    Parameters
    ----------
    folder : Path
        Folder of the run, with its `run.json`.
    settings : Settings
        Settings of the recording.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.url = folder, f"{settings.runs}/{folder.name}"
        self._interval = settings.upload_interval
        #: Whether `dask-strata record` finishes the upload, after it has compacted the run.
        self._by_record = folder.parent == folder_of_session(settings)
        self._ending = threading.Event()
        self._failing = False
        self._pid = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        self._note: Callable[[str], None] = lambda _: None
        self._thread = threading.Thread(
            target=self._run, name=f"dask-strata-upload-{folder.name[-8:]}", daemon=True
        )

    @property
    def ident(self) -> int | None:
        """Identity of the thread."""
        return self._thread.ident

    async def start(self) -> None:
        """Write `run.json` at the run's place, then start the thread.

        Raises
        ------
        StrataError
            The place cannot be written.
        """
        opening = asyncio.get_running_loop().run_in_executor(None, self._begin)
        try:
            self._upload = await asyncio.wait_for(opening, _START_SECONDS)
        except asyncio.TimeoutError:
            raise RecordingError(
                f"{shown(self.url)} cannot be written: there was no answer for {_START_SECONDS} s."
            ) from None
        atexit.register(self._at_exit)
        self._thread.start()

    def _begin(self) -> GrowingUpload:
        note_destination(self.folder, self.url)
        return begin_upload(self.folder, RemotePlace(self.url))

    def report_to(self, note: Callable[[str], None]) -> None:
        """Pass the reason of a failure to a function that records it."""
        self._note = note

    def end(self) -> None:
        """Upload the last rows and end the thread; does not wait."""
        self._ending.set()

    async def ended(self) -> None:
        """Wait up to 20 s until everything is uploaded, without blocking the event loop."""
        self.end()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, _DETACH_SECONDS)

    def _run(self) -> None:
        pause = self._interval
        while not self._ending.wait(pause):
            succeeded = self._upload_new()
            pause = self._interval if succeeded else min(2 * pause, _LONGEST_PAUSE)
        self._upload_new()
        if not self._by_record:
            self._finish()
        atexit.unregister(self._at_exit)

    def _upload_new(self) -> bool:
        try:
            with own_io():
                while self._upload.upload_new():
                    pass
        except Exception as error:  # noqa: BLE001  a library may raise anything; Dask must not
            self._report(error)
            return False
        self._failing = False
        return True

    def _report(self, error: Exception) -> None:
        if self._failing:
            return
        self._failing = True
        reason = (
            error.message if isinstance(error, StrataError) else f"{type(error).__name__}: {error}"
        )
        self._note(reason)
        if not self._ending.is_set():
            logger.warning(
                "dask-strata cannot upload the run: %s The run is kept in %s, and the upload is "
                "tried again.",
                reason,
                self.folder,
            )

    def _finish(self) -> None:
        command = [sys.executable, "-m", "dask_strata", "upload", str(self.folder)]
        environment = {**os.environ, "DASK_DASK_STRATA__ENABLED": "False"}
        try:
            self._child = subprocess.Popen(  # noqa: S603  our own command
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            _, errors = self._child.communicate()
        except Exception as error:  # noqa: BLE001  the process must end as without a recording
            self._report_kept(str(error))
            return
        if self._child.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            self._report_kept(lines[0].removeprefix("Error: ") if lines else "it was ended")

    def _report_kept(self, reason: str) -> None:
        logger.warning(
            "dask-strata could not finish the upload of the run: %s It is kept; continue with: "
            "dask-strata upload %s",
            reason,
            self.folder,
        )

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self.end()
        self._thread.join(_EXIT_SECONDS)
        if not self._thread.is_alive():
            return
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            self._thread.join(1)
        else:
            self._report_kept("the process ends.")
