"""A nanny's recorder: how the worker's process ended, and that it was started again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from distributed.core import Status

from dask_strata.config import read_settings, understood
from dask_strata.recorder.environment.static_facts import add_statics
from dask_strata.recorder.pipeline.comm import sender
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.profiling.darshan_worker import Preparation

_ENDED = (Status.closed, Status.failed)
_ENDING = (*_ENDED, Status.closing)


class NannyRecorder(Source):
    """Records one nanny; made and closed on its event loop.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    spec : dict
        As the scheduler's recorder announced it: run, folder, settings.
    """

    def __init__(self, nanny: Any, spec: dict[str, Any]) -> None:
        self._nanny = nanny
        #: Called, on the recorder's thread, when a process of its worker is up.
        self.on_worker: Callable[[], None] = lambda: None
        operation = f"dask-strata-{spec['run']}"
        send = sender(nanny.scheduler, operation, nanny.loop)
        settings = read_settings(understood(spec["settings"])[0])
        self._engine = engine = Engine("nanny", spec["run"], Path(spec["folder"]), settings, send)
        self._watched: Any = None
        self._pid: int | None = None
        self._address: str | None = None
        self._reported = False
        self._spec = spec
        engine.start(self, address=nanny.address, name=str(nanny.name))
        self._darshan = Preparation(nanny, engine)

    async def prepare(self) -> None:
        """Do what must be done before the worker's process is started."""
        await self._darshan.begin()

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the action that gathers facts of the nanny's process."""
        return [lambda: add_statics(self._engine, self._spec)]

    def end_reason(self) -> str | None:
        """Return that the nanny has closed, once it has."""
        return "closed" if self._nanny.status in _ENDED else None

    def sample(self) -> None:
        """Look at the worker's process."""
        self._watch()

    def detach(self) -> None:
        """Look at the worker's process for the last time."""
        self._watch()

    def _watch(self) -> None:
        """Look after the worker's process: a new one is a start, one with an exit code an end."""
        held = self._nanny.process
        process = getattr(held, "process", None)
        started = process is not None and process.pid is not None
        if process is not None and started and process is not self._watched:
            self._report_exit()
            self._watched = process
            self._pid = process.pid
            self._address = None
            self._reported = False
            self._learn_address(held)
            self._add("process-start", f"pid {self._pid}")
        if held is not None and self._watched is process:
            self._learn_address(held)
        self._report_exit()

    def _learn_address(self, held: Any) -> None:
        # Until a new process has said its address, Dask goes on to hold the one before.
        if getattr(held, "status", None) is Status.running:
            address, self._address = self._address, held.worker_address or self._address
            if self._address != address:
                self.on_worker()

    def _report_exit(self) -> None:
        process = self._watched
        if process is None or self._reported:
            return
        code = process.exitcode
        if code is not None:
            self._reported = True
            self._add("process-exit", f"pid {self._pid} {_describe(code)}")

    def _add(self, action: str, reason: str) -> None:
        self._engine.add(
            "worker_events",
            time=now_ns(),
            worker=self._address,
            name=str(self._nanny.name),
            action=action,
            reason=reason,
        )

    async def close(self) -> None:
        """Stop, at once if only the recording ends, else when the nanny has closed."""
        if self._nanny.status not in _ENDING:
            await self._engine.finish_and_wait("detached")
        elif self._engine.sink.transport == "comm":
            await self._engine.finish_and_wait("closed")


def _describe(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
