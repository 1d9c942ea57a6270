"""The scheduler's recorder: makes the run's folder, sees the graph and every transition.

It hands the recorders of workers and nannies out through Dask's own plugins.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_strata.config import VERSION, Settings, read_settings, understood
from dask_strata.recorder.environment.static_facts import add_statics
from dask_strata.recorder.pipeline.anonymize import Replacing, with_secret
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.pipeline.writer_thread import WriterThread
from dask_strata.recorder.plugins import (
    METADATA,
    dumps_nanny_plugin,
    dumps_worker_plugin,
    plugin_name,
)
from dask_strata.recorder.profiling.source import profile, warn_if_missing
from dask_strata.recorder.roles.dashboard import DashboardPage
from dask_strata.recorder.roles.detach import take_off
from dask_strata.recorder.sources.events import EventSource
from dask_strata.recorder.sources.graph import GraphSource
from dask_strata.recorder.sources.log_tap import UnexpectedLogError
from dask_strata.recorder.sources.scheduler_samples import SchedulerSamples
from dask_strata.recorder.sources.transitions import PluginSource, TransitionSource
from dask_strata.store.manifest import (
    SEGMENTS,
    SUFFIX,
    Manifest,
    new_run_id,
    run_folder_name,
    sync_run,
)
from dask_strata.store.sinks import RelaySink

logger = logging.getLogger("dask_strata")

#: How often, and how long each time, the last count waits for a scheduler that still moves.
_SETTLE_TRIES, _SETTLE_SECONDS = 25, 0.02


_ENDED = (Status.closed, Status.failed)


class SchedulerRecorder(SchedulerPlugin, Source):
    """Records one scheduler, and through it a whole cluster.

    Register it with the scheduler (`Client.register_plugin`, or a preload). It attaches
    when it is started, and detaches with `detach` or when the scheduler has closed.

    Parameters
    ----------
    settings : Settings
        What to record, how often, and where: a relative folder is taken from the working
        directory of whoever makes this object.
    name : str
        Name of the run.
    owner : str, optional
        Id of the client that the recording is for; it ends when that client is gone.
    """

    idempotent = True

    # Dask calls each plugin's `transition` for each change of state. When transitions are
    # taken from Dask's log there is nothing to do here, and a method implemented in C that
    # takes any arguments is the cheapest way to do nothing.
    transition = staticmethod("".format)

    def __init__(self, settings: Settings, name: str, owner: str | None = None) -> None:
        self.run = new_run_id()
        self.owner = owner
        self.name = plugin_name(self.run)
        self.settings = with_secret(replace(settings, runs=os.path.abspath(settings.runs)))
        created = now_ns()
        self.folder = Path(self.settings.runs) / run_folder_name(name, self.run, created)
        self._manifest = Manifest(
            run=self.run,
            name=name,
            created_ns=created,
            version=VERSION,
            session=settings.session,
            flush_interval_seconds=settings.flush_interval,
        )
        self._engine: Engine | None = None

    def __reduce__(self) -> Any:
        return _restore, (self.settings, self._manifest, str(self.folder), self.owner)

    @property
    def recording(self) -> bool:
        """Whether anything is being recorded."""
        return self._engine is not None and not self._engine.finished

    async def start(self, scheduler: Any) -> None:
        """Attach: make the folder, follow the logs, hand out the other recorders.

        Raises
        ------
        OSError
            The run's folder cannot be made where the scheduler runs.
        """
        if self._engine is not None:
            return
        facts = {"address": scheduler.address, "id": scheduler.id, "pid": os.getpid()}
        if self.settings.leave_out:
            facts = Replacing(self.settings).facts(facts)
        replace(self._manifest, scheduler=facts).write(self.folder)
        self._scheduler = scheduler
        self._engine = Engine("scheduler", self.run, self.folder, self.settings)
        try:
            spec = self._attach(scheduler, self._engine)
            await scheduler.register_worker_plugin(
                comm=None, plugin=dumps_worker_plugin(spec), name=self.name, idempotent=False
            )
            await scheduler.register_nanny_plugin(
                comm=None, plugin=dumps_nanny_plugin(spec), name=self.name, idempotent=False
            )
        except BaseException:
            await self.stop("could not begin")
            raise

    def _attach(self, scheduler: Any, engine: Engine) -> dict[str, Any]:
        """Begin to see what happens; return what workers and nannies need to know."""
        relay = RelaySink(self.folder / SEGMENTS, SUFFIX)
        interval = self.settings.fsync_interval
        self._relay = WriterThread(relay, f"{self.name}-relay", lambda: None, interval)
        self._relay.start()
        self._graph = GraphSource(self.run, code=self.settings.code, inputs=self.settings.inputs)
        self._events = EventSource(engine)
        self._transitions = self._tap(scheduler)
        self._samples = SchedulerSamples(scheduler, engine, self._transitions)
        scheduler.handlers[self.name] = self._take_frame
        engine.start(
            self,
            self._samples,
            self._transitions,
            self._events,
            self._graph,
            address=scheduler.address,
            name=getattr(scheduler, "name", None),
            tap=self._transitions.name,
        )
        warn_if_missing(self.settings)
        profile(engine)
        self._page = DashboardPage(scheduler, engine, self._manifest.name)
        # From here on nothing escapes us, also while the plugins below are handed out.
        scheduler.add_plugin(self, name=self.name, idempotent=True)
        self._there_already(scheduler)
        self._spec = {
            "run": self.run,
            "folder": str(self.folder),
            "settings": self.settings.chosen(),
        }
        self._announce()
        return self._spec

    def _announce(self) -> None:
        self._scheduler.task_metadata.setdefault(METADATA, {})[self.run] = self._spec

    def _revoke(self) -> None:
        runs = self._scheduler.task_metadata.get(METADATA, {})
        runs.pop(self.run, None)
        if not runs:
            self._scheduler.task_metadata.pop(METADATA, None)

    def _tap(self, scheduler: Any) -> TransitionSource | PluginSource:
        if self.settings.tap == "auto":
            try:
                return TransitionSource(scheduler, code=self.settings.code)
            except UnexpectedLogError as error:
                logger.warning("dask-strata uses plugin calls on this version of Dask: %s", error)
        source = PluginSource(scheduler, time.time, code=self.settings.code)
        # The instance hides the class's method that does nothing.
        self.__dict__["transition"] = source.transition
        return source

    def _there_already(self, scheduler: Any) -> None:
        """Note who is connected when a recording of a running cluster begins."""
        for address, ws in scheduler.workers.items():
            self._worker_row(address, ws, "present", None)
        for client in scheduler.clients:
            if client != "fire-and-forget":
                self._engine.add("clients", time=now_ns(), client=client, action="connected")  # type: ignore[union-attr]

    def _worker_row(self, address: str, ws: Any, action: str, stimulus_id: str | None) -> None:
        self._engine.add(  # type: ignore[union-attr]
            "worker_events",
            time=now_ns(),
            worker=address,
            name=str(ws.name),
            action=action,
            stimulus_id=stimulus_id,
            reason=f"{ws.nthreads} threads, {ws.memory_limit} bytes, pid {ws.pid}",
        )

    # Calls by Dask, on the event loop.

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: Any, keys: Any, **kwargs: Any
    ) -> None:
        """Take a submission."""
        if self.recording:
            self._graph.submitted(scheduler, client, tasks, keys, kwargs.get("stimulus_id"))

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Take the arrival of a worker."""
        if self.recording:
            self._worker_row(worker, scheduler.workers[worker], "add", None)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **_: Any) -> None:  # noqa: ARG002
        """Take the end of a worker, while tasks still say whom they blame."""
        if self.recording:
            self._transitions.worker_removed(worker, stimulus_id)
            self._events.worker_removed(worker, stimulus_id)

    def add_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002
        """Take the arrival of a client."""
        if self.recording:
            self._engine.add("clients", time=now_ns(), client=client, action="connect")  # type: ignore[union-attr]

    def remove_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002
        """Take the end of a client."""
        if self.recording:
            self._engine.add("clients", time=now_ns(), client=client, action="disconnect")  # type: ignore[union-attr]
            if client == self.owner and self._scheduler.status is Status.running:
                self._scheduler.loop.add_callback(self.stop, "its client is gone")

    def restart(self, scheduler: Any) -> None:  # noqa: ARG002
        """Take a restart of the cluster, in which the scheduler forgets what was announced."""
        if self.recording:
            self._announce()
            self._engine.add("worker_events", time=now_ns(), action="restart-cluster")  # type: ignore[union-attr]

    def log_event(self, topic: str, msg: Any) -> None:
        """Take an event that anyone logged, or what a worker has to say to us."""
        if not self.recording:
            return
        if topic == self.name and isinstance(msg, dict):
            self._engine.add(  # type: ignore[union-attr]
                "losses",
                time=now_ns(),
                what="worker",
                reason=redact_text(clip(str(msg.get("not-recorded")), 1000)),
                where=clip(str(msg.get("worker")), 1000),
            )
            return
        self._events.logged(topic, msg)

    async def before_close(self) -> None:
        """Write what there is: whoever closes the scheduler may not wait for us."""
        if self._engine is not None:
            self._engine.flush()

    # Records of others that come over Dask's comms.

    async def _take_frame(self, process: str, frame: bytes) -> None:
        try:
            self._relay.put(RelaySink.address(process, bytes(frame)), 0)
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("dask-strata refused a record: %s", error)

    # The end.

    async def stop(self, reason: str = "detached") -> None:
        """Stop recording the whole cluster and leave nothing behind."""
        if not self.recording:
            return
        scheduler = self._scheduler
        # Who is not asked now, as it is just coming or coming back, learns by this that it is over.
        self._revoke()
        async for what in take_off(scheduler, self.name):
            logger.warning("dask-strata: not every recorder could be taken off: %s", what)
            self._engine.add(  # type: ignore[union-attr]
                "losses",
                time=now_ns(),
                what="recorders",
                reason=f"not every recorder could be taken off: {what}",
            )
        await self._engine.finish_and_wait(reason)  # type: ignore[union-attr]
        if self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the actions that gather facts of the scheduler's process."""
        engine = self._engine
        assert engine is not None  # noqa: S101  for the type checker
        actions = [lambda: add_statics(engine)]
        if self.settings.fsync_interval is not None:
            actions.append(lambda: sync_run(self.folder))
        return actions

    def end_reason(self) -> str | None:
        """Return that the scheduler has closed, once it has."""
        return "closed" if self._scheduler.status in _ENDED else None

    def detach(self) -> None:
        """Read the last of the log, count it, and give the scheduler back what was its own."""
        engine, scheduler = self._engine, self._scheduler
        assert engine is not None  # noqa: S101  for the type checker
        self._settle(engine)
        self._transitions.remove()
        engine.flush()
        self._graph.end()  # the recorder's thread describes the rest
        self._samples.count(final=True)
        self._page.remove()
        self._relay.close()
        self.__dict__.pop("transition", None)
        scheduler.handlers.pop(self.name, None)
        self._revoke()

    def _settle(self, engine: Engine) -> None:
        """Wait, a moment at most, until nothing moves: a closed scheduler still lets go of tasks.

        On the event loop's own thread nothing moves meanwhile, and this does not wait.
        """
        for _ in range(_SETTLE_TRIES):
            before = self._transitions.counter()
            engine.flush()
            if before == self._transitions.counter() == self._transitions.recorded:
                return
            time.sleep(_SETTLE_SECONDS)


def _restore(
    settings: Settings, manifest: Manifest, folder: str, owner: str | None
) -> SchedulerRecorder:
    # A client of another version may have other settings.
    settings = read_settings(understood(vars(settings))[0])
    recorder = SchedulerRecorder(settings, manifest.name, owner)
    recorder.run = manifest.run
    recorder.name = plugin_name(manifest.run)
    recorder._manifest = manifest  # noqa: SLF001  this is its own constructor
    recorder.folder = Path(folder)
    return recorder


class Detacher(SchedulerPlugin):
    """Detaches the recorder of a run when it is registered; a message, in Dask's terms.

    Parameters
    ----------
    run : str
        Id of the run.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.name = f"dask-strata-detach-{run}"

    async def start(self, scheduler: Any) -> None:
        """Detach the recorder."""
        recorder = scheduler.plugins.get(plugin_name(self.run))
        if isinstance(recorder, SchedulerRecorder):
            await recorder.stop()
