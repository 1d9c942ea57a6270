"""Sending a run to a broker while it is recorded, by a process of its own.

The process reads the run's files, so that a slow or absent broker costs the cluster nothing. It
goes on after the scheduler's process has ended, until everything is sent or the broker was away for
a minute.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dask_strata.brokers.address import parse_address
from dask_strata.config import Settings

logger = logging.getLogger("dask_strata")

#: Setting that the process must not have: it sends and records nothing else.
_OWN = "DASK_DASK_STRATA__STREAM"


def with_absolute_stream(settings: Settings) -> Settings:
    """Return the settings, with a file that is relative to this process's folder as a whole path.

    Raises
    ------
    UsageError
        The setting ``stream`` is not the address of a stream.
    """
    if settings.stream is None:
        return settings
    address = parse_address(settings.stream)
    is_file = address.scheme == "file"
    return replace(settings, stream=f"file:{address.path}") if is_file else settings


class SenderProcess:
    """The process that sends one run, and a thread that logs its messages.

    Parameters
    ----------
    folder : Path
        The run's folder, with its `run.json`.
    url : str
        Address of the stream; no list of processes shows it.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._thread = threading.Thread(
            target=self._run, name=f"dask-strata-stream-{folder.name[-8:]}", daemon=True
        )

    def start(self) -> None:
        """Start the process, without waiting for it; never raises."""
        with suppress(RuntimeError):  # the interpreter exits
            self._thread.start()

    def _run(self) -> None:
        command = [sys.executable, "-m", "dask_strata", "stream", "--background"]
        environment = {name: value for name, value in os.environ.items() if name != _OWN}
        environment["DASK_DASK_STRATA__ENABLED"] = "False"
        try:
            process = subprocess.Popen(  # noqa: S603  our own command
                [*command, str(self._folder), "-"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # Ctrl-C and the end of the terminal are not for it: it sends the last rows.
                start_new_session=True,
            )
            with process:
                self._follow(process)
        except Exception as error:  # noqa: BLE001  the cluster must not notice
            logger.warning("dask-strata cannot send the run to its stream: %s", error)

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.write(self._url.encode())
            process.stdin.close()
        for line in process.stderr or ():
            text = line.decode(errors="replace").strip()
            if text:
                logger.warning("dask-strata: %s", text.removeprefix("Error: "))
