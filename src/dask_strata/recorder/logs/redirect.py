"""Standard output and error of a worker's process, sent through the pipes of its nanny.

The process keeps its own descriptors and gets them back when its recording ends before it does, or
when nobody reads the pipes any more. A process that ends keeps the pipes, so that its last words
are on record.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any

from distributed.core import Status

from dask_strata.recorder.logs import pipes
from dask_strata.recorder.logs.fatal_signals import Tracebacks
from dask_strata.recorder.logs.source import records_logs
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source

_LIVING = (Status.running, Status.paused)


class _Redirection:
    """The redirected descriptors of this process."""

    def __init__(self, found: dict[int, int]) -> None:
        self._saved: dict[int, int] = {}
        self._pipes: dict[int, tuple[int, int]] = {}
        self._tracebacks: Tracebacks | None = None
        _flush()
        try:
            for standard in found:
                self._saved[standard] = pipes.duplicate(standard)
            for standard, pipe in found.items():
                self._pipes[standard] = pipes.identity(pipe)
                os.dup2(pipe, standard)
        except OSError:
            self.restore()
            raise
        finally:
            for pipe in {*found.values()}:
                os.close(pipe)
        # They are written to the descriptor, and so through the pipe, or later to the original.
        self._tracebacks = Tracebacks(pipes.STREAMS["stderr"])

    def is_read(self) -> bool:
        """Return whether somebody reads all pipes."""
        poll = select.poll()
        for standard in self._pipes:
            poll.register(standard, 0)
        return not any(events & select.POLLERR for _, events in poll.poll(0))

    def is_whole(self) -> bool:
        """Return whether all standard descriptors that are open are those of the pipes."""
        for standard in pipes.STREAMS.values():
            with contextlib.suppress(OSError):
                if pipes.identity(standard) != self._pipes.get(standard):
                    return False
        return True

    def restore(self) -> None:
        """Restore the process's own descriptors, unless other code has redirected them since."""
        _flush()
        if self._tracebacks is not None:
            self._tracebacks.end()
        for standard, saved in self._saved.items():
            with contextlib.suppress(OSError):
                if pipes.identity(standard) == self._pipes.get(standard):
                    os.dup2(saved, standard)
            os.close(saved)
        self._saved.clear()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user may have put any object in its place
            stream.flush()


_lock = threading.Lock()
_present: _Redirection | None = None
#: Recordings that need the redirection.
_holders: list[Any] = []


def _redirect(folder: Path) -> _Redirection | None:
    found = pipes.open_to_write(folder)
    return _Redirection(found) if found else None


def redirect_from_start() -> None:
    """Redirect the output of a process that is about to be a worker; never raises.

    The nanny names the folder of its pipes in the environment.
    """
    global _present  # noqa: PLW0603  the descriptors are those of the process
    folder = os.environ.get(pipes.FOLDER_VARIABLE)
    with _lock, contextlib.suppress(OSError):
        if folder is not None and _present is None:
            _present = _redirect(Path(folder))


class RedirectedOutput(Source):
    """Send this process's output through the pipes of the worker's nanny, while it is recorded.

    Parameters
    ----------
    worker : distributed.Worker
        A worker with a nanny.
    engine : Engine
        Its recorder.
    """

    def __init__(self, worker: Any, engine: Engine) -> None:
        self._worker, self._engine = worker, engine
        self._failed = self._elsewhere = False
        with _lock:
            _holders.append(self)
        self._look()

    def sample(self) -> None:
        """Redirect once the nanny reads; restore if it does not any more."""
        self._look()

    def _look(self) -> None:
        global _present  # noqa: PLW0603  the descriptors are those of the process
        with _lock:
            if _present is not None:
                self._elsewhere |= not _present.is_whole()
                if not _present.is_read():  # the nanny was killed
                    _present.restore()
                    _present = None
                    pipes.remove(pipes.folder_of(self._worker.nanny))
            elif self in _holders and not self._failed:
                try:
                    folder = pipes.folder_of(self._worker.nanny)
                    self._elsewhere |= pipes.is_elsewhere(folder)
                    _present = _redirect(folder)
                except OSError:  # there is no descriptor left, or no temporary folder
                    self._failed = True

    def remove(self) -> None:
        """Restore the descriptors, if the process goes on and no other recording needs them."""
        global _present  # noqa: PLW0603  the descriptors are those of the process
        with _lock:
            if self in _holders:
                _holders.remove(self)
                if self._elsewhere:
                    self._engine.add(
                        "losses",
                        time=now_ns(),
                        what="output_lines",
                        reason="the worker writes to another file than its nanny",
                        where=self._engine.process,
                    )
            if not _holders and _present is not None and self._worker.status in _LIVING:
                _present.restore()
                _present = None

    detach = remove


def redirect_output(worker: Any, engine: Engine) -> list[Source]:
    """Return the source that redirects the output of a worker's process; none without a nanny.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    engine : Engine
        Its recorder.
    """
    if not worker.nanny or not pipes.available() or not records_logs(engine.settings):
        return []
    return [RedirectedOutput(worker, engine)]
