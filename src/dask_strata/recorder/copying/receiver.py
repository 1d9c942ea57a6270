"""The client's side of bringing runs: a connection to the scheduler, and a thread that uses it.

The thread has an event loop and a connection of its own, so that it neither delays the client's
event loop nor ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dask_strata.errors import RecordingError
from dask_strata.recorder.copying.sender import ANSWER_BYTES, DONE, MAX_NAMED, READ, RUNS
from dask_strata.store.copies.growth import Part, positions, write_part
from dask_strata.store.copies.origin import Origin, mark_complete
from dask_strata.store.limits import NAME_CHARACTERS, PAYLOAD_BYTES
from dask_strata.store.manifest import MANIFEST, Manifest
from dask_strata.store.safe_files import (
    RefusedError,
    create_run_folder,
    is_file,
    is_folder,
    is_name,
    kind_of,
)

logger = logging.getLogger("dask_strata")

#: Longest wait for one answer, and for a connection.
_ANSWER_SECONDS = 30
_CONNECT_SECONDS = 5

#: Pause between two requests if nothing has grown, and after a failure.
_PAUSE_SECONDS = 0.25
_RETRY_SECONDS = 1.0

#: Longest wait for the first files of a run, and for its end after its client has left.
_FIRST_SECONDS = 10
_END_SECONDS = 10

#: Number of short waits for the thread before a copy is removed.
_DISCARD_TRIES = 50

#: Attempts to get the rest of a run after its end.
_LAST_TRIES = 3


_RUN_ID = re.compile(r"[0-9a-f]{8}")


def is_run_id(text: object) -> bool:
    """Return whether a value is the id of a run.

    >>> is_run_id("0a1b2c3d"), is_run_id("../0a1b2c3d"), is_run_id(None)
    (True, False, False)
    """
    return isinstance(text, str) and _RUN_ID.fullmatch(text) is not None


class NoSuchRunError(RecordingError):
    """The scheduler has no run with this id any more."""


class UnreadError(OSError):
    """The scheduler cannot read some files of a run; perhaps only now."""


class Answer(NamedTuple):
    """The next parts of a run.

    Attributes
    ----------
    parts : list of Part
        The parts; none if the copy has everything that can be read.
    ended : bool
        Whether the recording has ended.
    unread : list of str
        Some of the files that the scheduler cannot read, printable.
    """

    parts: list[Part]
    ended: bool
    unread: list[str]


class Connection:
    """A connection to a scheduler that may have runs; close it after use.

    Parameters
    ----------
    address : str
        The scheduler's address.
    connection_args : dict
        As `distributed.security.Security.get_connection_args` returns them.
    """

    def __init__(self, address: str, connection_args: dict[str, Any]) -> None:
        from distributed.core import rpc

        self._rpc = rpc(address, timeout=_CONNECT_SECONDS, connection_args=connection_args)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._rpc.close_rpc()

    async def _call(self, operation: str, **arguments: Any) -> Any:
        answer = getattr(self._rpc, operation)(**arguments)
        return await asyncio.wait_for(answer, _ANSWER_SECONDS)

    async def runs(self) -> dict[str, dict[str, Any]]:
        """Return folder, host and kind of the runs that the scheduler has, by run id."""
        return await self.announced(RUNS)

    async def announced(self, key: str) -> dict[str, dict[str, Any]]:
        """Return an entry of the scheduler's metadata that lists runs."""
        found = await self._call("get_metadata", keys=[key], default=None)
        return {
            run: facts
            for run, facts in (found.items() if isinstance(found, dict) else ())
            if is_run_id(run) and isinstance(facts, dict)
        }

    async def read(self, run: str, stream: str, seen: Any) -> Answer:
        """Return the next parts of a run.

        Raises
        ------
        NoSuchRunError
            The scheduler does not have the run any more.
        RefusedError
            The answer is not of the expected form, or too large.
        OSError
            The connection failed.
        """
        answer = await self._call(READ, run=run, stream=stream, seen=seen)
        if not isinstance(answer, dict) or "error" in answer:
            raise NoSuchRunError(f"The scheduler at {self._rpc.address} has no run {run} any more.")
        try:
            parts = [Part(*fields) for fields in answer.get("parts") or ()]
            size = sum(len(part.data) for part in parts)
            names = list(answer.get("unread") or ())[:MAX_NAMED]
        except TypeError:
            raise RefusedError("the scheduler's answer is not of the expected form") from None
        if size > PAYLOAD_BYTES + 2 * ANSWER_BYTES:
            raise RefusedError("the scheduler sent more bytes than requested")
        # The names are printed, and may contain anything.
        unread = [ascii(name)[:NAME_CHARACTERS] for name in names]
        return Answer(parts, bool(answer.get("ended")), unread)

    async def done(self, run: str, stream: str) -> None:
        """Report that the run was received in full; a spooled one is then removed there."""
        await self._call(DONE, run=run, stream=stream)


@dataclass
class Bringing:
    """What `bring` needs beyond the connection.

    Attributes
    ----------
    run : str
        Id of the run.
    folder : Path
        Folder of the copy.
    wanted : callable
        Returns whether to wait for more of a run that has not ended.
    received : callable
        Called after each answer with the number of its bytes.
    stream : str
        Name of this copy at the scheduler, over several connections.
    """

    run: str
    folder: Path
    wanted: Callable[[], bool] = lambda: False
    received: Callable[[int], None] = lambda _: None
    stream: str = field(default_factory=partial(secrets.token_hex, 8))


async def bring(connection: Connection, bringing: Bringing) -> bool:
    """Copy a run until it has ended, or until nothing is left and no more is wanted.

    Returns
    -------
    bool
        Whether the run has ended, so that the copy is complete.

    Raises
    ------
    UnreadError
        The scheduler has sent everything but some files, which it cannot read.
    NoSuchRunError, RefusedError, OSError
        As `Connection.read` and `write_part` raise them.
    """
    run, folder, stream = bringing.run, bringing.folder, bringing.stream
    seen: Any = {name: list(position) for name, position in positions(folder).items()}
    while True:
        wanted = bringing.wanted()  # before the request: its answer is then complete
        answer = await connection.read(run, stream, seen)
        seen = None
        for part in answer.parts:
            write_part(folder, part)
        bringing.received(sum(len(part.data) for part in answer.parts))
        if answer.parts:
            continue
        if answer.ended:
            if answer.unread:
                raise UnreadError(f"the scheduler cannot read {', '.join(answer.unread)}")
            mark_complete(folder)
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await connection.done(run, stream)
            return True
        if not wanted:
            return False
        await asyncio.sleep(_PAUSE_SECONDS)


def copy_name(name: str) -> str:
    """Return the name of a run's folder for its copy.

    Raises
    ------
    RecordingError
        It is not a name that a folder of a run can have.
    """
    if not is_name(name) or name.startswith("."):
        raise RecordingError(f"{name[:NAME_CHARACTERS]!a} is not the name of a run.")
    return name


def create_copy(folder: Path, origin: Origin, access: str) -> None:
    """Create the folder of a copy, or continue one.

    Raises
    ------
    RecordingError
        The folder is another run, or cannot be written.
    """
    try:
        if kind_of(folder) is not None and not is_folder(folder):
            raise RefusedError(f"{folder.name} is {kind_of(folder)}")
        create_run_folder(folder, access)
        if (folder / MANIFEST).exists() and Manifest.read(folder).run_id != origin.run:
            raise RefusedError("it is another run")
        origin.write(folder)
    except OSError as error:
        raise RecordingError(f"The run cannot be written to {folder}: {error.strerror}.") from error


class Receiver:
    """Copies a run to this machine while it is recorded, on a thread.

    Parameters
    ----------
    client : distributed.Client
        A client of the cluster; only its address and security are used.
    origin : Origin
        The run.
    folder : Path
        Folder of the copy.
    access : str
        Value of the setting `access`.
    owned : bool
        Whether the recording ends with its client. Otherwise the copy may end before the run.
    """

    def __init__(
        self, client: Any, origin: Origin, folder: Path, access: str, *, owned: bool
    ) -> None:
        self.origin, self.folder = origin, folder
        self._arguments = client.connection_args
        self._owned = owned
        self._until = float("inf")
        self._first = threading.Event()
        self._logged = False
        self.complete = False
        self.problem: str | None = None
        self._created = [p for p in (folder, *folder.parents) if not p.exists()]
        create_copy(folder, origin, access)
        self._thread = threading.Thread(
            target=self._run, name=f"dask-strata-receiver-{origin.run}", daemon=True
        )

    async def start(self) -> None:
        """Start copying, and wait for the first files.

        Raises
        ------
        RecordingError
            They did not arrive.
        """
        self._thread.start()
        until = time.monotonic() + _FIRST_SECONDS
        while not self._first.is_set():
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RecordingError(
                    f"The run in {self.origin.host}:{self.origin.folder} could not be copied: "
                    f"{self.problem or f'no answer within {_FIRST_SECONDS} s'}."
                )
            await asyncio.sleep(0.02)

    async def finish(self) -> None:
        """Wait until the rest of the run has arrived, or cannot be had; then log the missing part.

        Call it when the recording has ended, or is to be copied no longer.
        """
        self.end()
        while self._thread.is_alive():  # noqa: ASYNC110  it may end after this loop
            await asyncio.sleep(0.02)
        self._report()

    def finish_blocking(self) -> None:
        """Do the same without an event loop."""
        self.end()
        self._thread.join()
        self._report()

    async def discard(self) -> None:
        """Stop copying, and remove the copy unless it was begun earlier."""
        self._owned = False
        self.end()
        for _ in range(_DISCARD_TRIES):
            if self._thread.is_alive():
                await asyncio.sleep(0.02)
        if self._created:
            shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # no longer empty
            for parent in self._created[1:]:
                parent.rmdir()

    def end(self) -> None:
        """Stop copying as soon as the rest has arrived, or cannot be had; does not wait."""
        self._until = time.monotonic() + (_END_SECONDS if self._owned else 0)

    @property
    def _ending(self) -> bool:
        return self._until < float("inf")

    def _report(self) -> None:
        if self.complete or (self.problem is None and not self._owned):
            return
        logger.warning(
            "dask-strata: the run in %s is incomplete: %s. The rest is in %s:%s as long as the "
            "scheduler runs; fetch it with: dask-strata fetch %s -o %s",
            self.folder,
            self.problem or "its recording has not ended",
            self.origin.host,
            self.origin.folder,
            self.origin.run,
            self.folder.parent,
        )

    def _run(self) -> None:
        try:
            asyncio.run(self._copy())
        except Exception as error:  # noqa: BLE001  the user's block must not notice
            self.problem = f"{type(error).__name__}: {error}"

    async def _copy(self) -> None:
        failures = 0
        bringing = Bringing(self.origin.run, self.folder, self._wanted, self._received)
        while True:
            try:
                connection = Connection(self.origin.address, self._arguments)
                async with contextlib.aclosing(connection):
                    self.complete = await bring(connection, bringing)
            except (RefusedError, NoSuchRunError) as error:
                self.problem = str(getattr(error, "strerror", None) or error).rstrip(".")
                return
            except (OSError, asyncio.TimeoutError) as error:
                failures += self._ending
                self._failed(error)
                if failures >= _LAST_TRIES or time.monotonic() > self._until:
                    return
            else:
                self.problem = None
                return
            await asyncio.sleep(_RETRY_SECONDS)

    def _failed(self, error: Exception) -> None:
        kind = "" if isinstance(error, UnreadError) else f"{type(error).__name__}: "
        self.problem = f"{kind}{error}".rstrip(": .")
        if not self._logged and not self._ending:
            self._logged = True
            logger.warning(
                "dask-strata: the copy of the run in %s is interrupted (%s); it continues when "
                "the scheduler answers.",
                self.folder,
                self.problem,
            )

    def _wanted(self) -> bool:
        return time.monotonic() < self._until

    def _received(self, n_bytes: int) -> None:
        self._logged = False
        if n_bytes == 0 or is_file(self.folder / MANIFEST):
            self._first.set()  # a run that has been recorded for long takes longer than the wait
