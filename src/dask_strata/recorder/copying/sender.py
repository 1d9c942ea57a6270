"""The scheduler's side of bringing runs to other machines: handlers that read new bytes.

Files are read on a thread, a few MiB for each request. A run that the scheduler only spools for
its client is kept until somebody has all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dask_strata.config import VERSION
from dask_strata.store.copies.growth import Position, read_growth

logger = logging.getLogger("dask_strata")

#: Names of the scheduler's handlers, and of the metadata with the runs that can be fetched.
READ, DONE = "dask-strata-read", "dask-strata-done"
RUNS = "dask-strata-runs"

#: Bytes that are read for one request; one frame may exceed it.
ANSWER_BYTES = 2 << 20

#: Streams of one run whose positions are remembered; an older one has to send its own again.
_STREAMS = 16

#: Files that cannot be read of which an answer has the names.
MAX_NAMED = 10

#: A client that sent no request for this long, in seconds, has stopped.
_SILENT_SECONDS = 3

#: Longest wait of a closing scheduler for the client that fetches its run.
CLOSE_SECONDS = 3

_ATTRIBUTE = "_dask_strata_senders"


class SentRun:
    """A run that can be fetched from a scheduler.

    Parameters
    ----------
    run_id : str
        Id of the run.
    folder : Path
        Its folder, on the scheduler's machine.
    host : str
        Name of that machine.
    spooled : bool
        Whether the folder exists only until the run has been fetched.
    """

    def __init__(self, run_id: str, folder: Path, host: str, *, spooled: bool) -> None:
        self.run_id, self.folder, self.spooled = run_id, folder, spooled
        self.facts: dict[str, Any] = {"folder": str(folder), "host": host, "spooled": spooled}
        self.ended = False
        self.all_sent = False
        self._streams: dict[str, dict[str, Position]] = {}
        self._asked: dict[str, float] = {}

    def end(self) -> None:
        """Note that no process writes to the run any more."""
        self.ended = self.facts["ended"] = True

    def read(self, stream: str, seen: Any) -> dict[str, Any]:
        """Return the next parts for a stream; see `read_growth`. Call it on the reading thread."""
        self._asked[stream] = time.monotonic()
        if seen is not None:
            self._streams[stream] = _positions(seen)
            for oldest in list(self._streams)[:-_STREAMS]:
                del self._streams[oldest], self._asked[oldest]
        known = self._streams.get(stream)
        if known is None:
            return {"error": "unknown stream"}
        ended = self.ended  # before reading: later parts belong to the next answer
        unread: list[str] = []
        parts = read_growth(self.folder, known, ANSWER_BYTES, ended=ended, unreadable=unread.append)
        known.update({part.name: part.after for part in parts})
        self.all_sent = self.all_sent or (ended and not parts and not unread)
        return {
            "version": VERSION,
            "parts": [list(part) for part in parts],
            "ended": ended,
            "unread": unread[:MAX_NAMED],
        }

    def is_asked(self, *, but: str | None = None) -> bool:
        """Return whether a client fetches this run now, other than the stream ``but``."""
        limit = time.monotonic() - _SILENT_SECONDS
        return any(at > limit for stream, at in list(self._asked.items()) if stream != but)

    async def delivered(self, seconds: float) -> bool:
        """Wait until a client has all of the ended run; return whether one has."""
        until = time.monotonic() + seconds
        while not self.all_sent:
            if not self.is_asked() or time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    def remove_spool(self) -> None:
        """Remove the folder of a spooled run."""
        if self.spooled:
            shutil.rmtree(self.folder.parent, ignore_errors=True)


def _positions(seen: Any) -> dict[str, Position]:
    """Return valid positions from a message; others are left out, so that they start anew."""
    if not isinstance(seen, Mapping):
        return {}
    found = {}
    for name, position in seen.items():
        with contextlib.suppress(TypeError, ValueError):
            offset, version = map(int, position)
            if isinstance(name, str) and offset >= 0:
                found[name] = Position(offset, version)
    return found


class Senders:
    """The runs that can be fetched from one scheduler, and its handlers for that.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._runs: dict[str, SentRun] = {}
        self._reader = ThreadPoolExecutor(1, "dask-strata-read")
        scheduler.handlers[READ] = self._read
        scheduler.handlers[DONE] = self._done

    @classmethod
    def of(cls, scheduler: Any) -> Senders:
        """Return the only instance of a scheduler."""
        if _ATTRIBUTE not in vars(scheduler):
            setattr(scheduler, _ATTRIBUTE, cls(scheduler))
        found: Senders = getattr(scheduler, _ATTRIBUTE)
        return found

    def add(self, run: SentRun) -> None:
        """Make a run available."""
        self._runs[run.run_id] = run
        self.announce()

    def announce(self) -> None:
        """List the runs in the scheduler's metadata, which a restart of the cluster clears."""
        if self._runs:
            facts = {run_id: run.facts for run_id, run in self._runs.items()}
            self._scheduler.task_metadata[RUNS] = facts
        else:
            self._scheduler.task_metadata.pop(RUNS, None)

    def remove(self, run_id: str) -> None:
        """Make a run unavailable; with the last one, the handlers and the thread end."""
        self._runs.pop(run_id, None)
        self.announce()
        if not self._runs:
            self._scheduler.handlers.pop(READ, None)
            self._scheduler.handlers.pop(DONE, None)
            vars(self._scheduler).pop(_ATTRIBUTE, None)
            self._reader.shutdown(wait=False)

    async def on_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the reading thread, and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, function, *arguments)

    async def _read(self, run: str, stream: str, seen: Any = None) -> dict[str, Any]:
        sent = self._runs.get(run)
        if sent is None:
            return {"error": "unknown run"}
        found: dict[str, Any] = await self.on_thread(sent.read, str(stream), seen)
        return found

    async def _done(self, run: str, stream: str) -> bool:
        """Remove a spooled run that a client has in full, when no other client fetches it."""
        sent = self._runs.get(run)
        if sent is None or not sent.spooled or not sent.all_sent:
            return False
        if sent.is_asked(but=stream):  # by a client that goes on, or that has just died
            self._scheduler.loop.call_later(_SILENT_SECONDS, self._done, run, stream)
            return False
        await self.on_thread(sent.remove_spool)
        self.remove(run)
        return True
