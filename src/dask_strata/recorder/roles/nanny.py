"""The recorder of a nanny: starts and exits of the worker's process."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from distributed.core import Status

from dask_strata.config import read_settings, understood
from dask_strata.recorder.environment.oom_kills import OomKills
from dask_strata.recorder.environment.static_facts import add_static_facts
from dask_strata.recorder.logs.output import record_output
from dask_strata.recorder.logs.source import record_logs
from dask_strata.recorder.pipeline.comm import sender
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.profiling.darshan_worker import DarshanEnvironment
from dask_strata.schema.values import KILLED_BY, NO_OOM_KILL, OOM_KILL, PID, START_FAILED

_ENDED = (Status.closed, Status.failed)
_ENDING = (*_ENDED, Status.closing)


class NannyRecorder(Source):
    """Records one nanny. Create and close it on the nanny's event loop.

    Parameters
    ----------
    nanny : distributed.Nanny
        The nanny.
    spec : dict
        The recording, as the scheduler's recorder announced it: run id, folder and settings.
    """

    def __init__(self, nanny: Any, spec: dict[str, Any]) -> None:
        self._nanny = nanny
        #: Called on the recorder's thread when a process of the worker has started.
        self.on_worker: Callable[[], None] = lambda: None
        operation = f"dask-strata-{spec['run']}"
        send = sender(nanny.scheduler, operation, nanny.loop)
        settings = read_settings(understood(spec["settings"])[0])
        self._engine = engine = Engine("nanny", spec["run"], Path(spec["folder"]), settings, send)
        self._watched: Any = None
        self._pid: int | None = None
        self._address: str | None = None
        self._reported = False
        #: The recorder's thread and the event loop look at the process.
        self._watching = threading.RLock()
        self._oom_kills: OomKills | None = None
        self._spec = spec
        self._output = record_output(nanny, engine)
        # Without waiting for the first sample: the process may have ended by then.
        self._watch()
        output = [] if self._output is None else [self._output]
        facts = {"address": nanny.address, "name": _name(nanny)}
        engine.start(self, *output, *record_logs(engine), **facts)
        self._darshan = DarshanEnvironment(nanny, engine)
        # An instance attribute shadows the nanny's method, which starts a process of the worker.
        self.shadowed = vars(nanny).get("instantiate")
        self.instantiate = nanny.instantiate
        self._shadow = nanny.instantiate = self._start_process

    async def prepare(self) -> None:
        """Prepare the environment of the worker's process, before the nanny starts it."""
        await self._darshan.begin()

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the action that gathers facts of the nanny's process."""
        return [lambda: add_static_facts(self._engine, self._spec)]

    def end_reason(self) -> str | None:
        """Return ``"closed"`` if the nanny has closed."""
        return "closed" if self._nanny.status in _ENDED else None

    def sample(self) -> None:
        """Record a start or exit of the worker's process since the last sample."""
        was_reported = self._reported
        self._watch()
        if self._output is not None and self._reported and not was_reported:
            self._output.process_ended()
        if self._oom_kills is not None and not self._reported:
            self._oom_kills.look()

    def detach(self) -> None:
        """Record a start or exit since the last sample, and restore the nanny's method."""
        self._restore_method()
        self._watch()

    def _restore_method(self) -> None:
        """Restore the nanny's method, or take this one out from under that of another run."""
        top = vars(self._nanny).get("instantiate")
        if top is self._shadow:
            del self._nanny.instantiate
            if self.shadowed is not None:
                self._nanny.instantiate = self.shadowed
            return
        other = getattr(top, "__self__", None)
        while isinstance(other, NannyRecorder):
            if other.shadowed is self._shadow:
                other.shadowed, other.instantiate = self.shadowed, self.instantiate
                return
            other = getattr(other.shadowed, "__self__", None)

    def _start_process(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        if self._output is not None and not self._engine.finished:
            self._engine.call(self._output.before_start, "output of a worker")
        # A task, so that tracebacks of Dask's errors have no frame of the recorder.
        starting: asyncio.Task[Any] = asyncio.ensure_future(self.instantiate(*args, **kwargs))
        starting.add_done_callback(self._started)
        return starting

    def _started(self, starting: asyncio.Task[Any]) -> None:
        if starting.cancelled() or self._engine.finished:
            return
        self._engine.call(self._watch, "process of a worker")
        if (error := starting.exception()) is not None:
            self._add(START_FAILED, _describe_error(error))
            return
        asked = self._nanny.status in _ENDING or self._nanny.status is Status.closing_gracefully
        if starting.result() is not Status.running and not asked:
            code = getattr(self._watched, "exitcode", None)
            how = "ended" if code is None else _describe(code)
            self._add(START_FAILED, f"its process {how} before it connected")

    def _watch(self) -> None:
        """Record a new process of the worker as a start, and one with an exit code as an exit."""
        with self._watching:
            self._watch_process()

    def _watch_process(self) -> None:
        worker_process = self._nanny.process
        process = getattr(worker_process, "process", None)
        started = process is not None and process.pid is not None
        if process is not None and started and process is not self._watched:
            self._report_exit()
            self._watched = process
            self._pid = process.pid
            self._address = None
            self._reported = False
            self._oom_kills = OomKills(process.pid)
            self._update_address(worker_process)
            self._add("process-start", f"{PID}{self._pid}")
        if worker_process is not None and self._watched is process:
            self._update_address(worker_process)
        self._report_exit()

    def _update_address(self, worker_process: Any) -> None:
        # Before a new process runs, Dask still has the address of the previous one.
        if getattr(worker_process, "status", None) is Status.running:
            previous, self._address = (
                self._address,
                worker_process.worker_address or self._address,
            )
            if self._output is not None:
                self._output.set_address(self._pid, self._address)
            if self._address != previous:
                self.on_worker()

    def _report_exit(self) -> None:
        process = self._watched
        if process is None or self._reported:
            return
        code = process.exitcode
        if code is not None:
            self._reported = True
            if code == -signal.SIGKILL and self._oom_kills is not None:
                self._add_evidence(self._oom_kills)
            self._add("process-exit", f"{PID}{self._pid} {_describe(code)}")

    def _add_evidence(self, oom_kills: OomKills) -> None:
        """Record whether the kernel's OOM killer sent the signal; no row if that is unknown."""
        if (evidence := oom_kills.evidence()) is not None:
            action = OOM_KILL if evidence.risen else NO_OOM_KILL
            self._add(action, f"{PID}{self._pid}: {evidence.text}")

    def _add(self, action: str, reason: str) -> None:
        self._engine.add(
            "worker_events",
            time=now_ns(),
            worker=self._address,
            name=_name(self._nanny),
            action=action,
            reason=reason,
        )

    async def close(self) -> None:
        """End the recording, if that cannot wait until the nanny has closed.

        A closing nanny that writes its own file is recorded until it has closed; see `end_reason`.
        """
        if self._nanny.status not in _ENDING:
            await self._engine.finish_and_wait("detached")
        elif self._engine.sink.transport == "comm":
            await self._engine.finish_and_wait("closed")


def _name(nanny: Any) -> str | None:
    """Return the name of a nanny; None if it has none, as its worker is named by its address."""
    return None if nanny.name is None else str(nanny.name)


def _describe_error(error: BaseException) -> str:
    """Return an exception as text: that of the worker, not Dask's "Worker failed to start."."""
    while str(error).endswith(" failed to start.") and error.__cause__ is not None:
        error = error.__cause__
    return redact_text(clip(f"{type(error).__name__}: {error}", 10_000))


def _describe(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"{KILLED_BY}{signal.Signals(-code).name}"
    except ValueError:
        return f"{KILLED_BY}signal {-code}"
