"""The sources of a scheduler's rows during one recording, and the rows of Dask's calls."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from dask_strata.config import Settings
from dask_strata.recorder.exposition.series import expose
from dask_strata.recorder.graphs.own_tasks import OwnTasks
from dask_strata.recorder.graphs.present_tasks import MAX_PRESENT
from dask_strata.recorder.graphs.spans import Spans
from dask_strata.recorder.interruptions import interruption_sources
from dask_strata.recorder.jobs import job_topic
from dask_strata.recorder.jobs.source import JobSource
from dask_strata.recorder.logs.source import record_logs
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.plugins import plugin_name
from dask_strata.recorder.profiling.source import profile, warn_if_missing
from dask_strata.recorder.profiling.stacks import Frames, LoopStacks
from dask_strata.recorder.roles.cluster_plan import ClusterPlan
from dask_strata.recorder.roles.dashboard import DashboardPage
from dask_strata.recorder.roles.last_clients import LastClients, client_topic
from dask_strata.recorder.roles.registrations import RegistrationHook
from dask_strata.recorder.roles.scaling import scaling_sources
from dask_strata.recorder.sources.dask_logs import MessageHook, UnexpectedLogError
from dask_strata.recorder.sources.events import EventSource
from dask_strata.recorder.sources.graph import GraphSource
from dask_strata.recorder.sources.loop_lag import LoopMonitor
from dask_strata.recorder.sources.scheduler_samples import SchedulerSamples
from dask_strata.recorder.sources.segment_names import SegmentNames
from dask_strata.recorder.sources.transitions import PluginSource, TransitionSource
from dask_strata.recorder.stuck.source import StuckSource
from dask_strata.store.manifest import Manifest

logger = logging.getLogger("dask_strata")

#: Number and duration of waits for the last transitions of a closed scheduler.
_SETTLE_TRIES, _SETTLE_SECONDS = 25, 0.02

#: Topics of the events between recorders.
_OWN_TOPIC = re.compile(r"dask-strata-[0-9a-f]{8}(-job|-client)?")


class SchedulerSources:
    """The recording of one scheduler's state. Create and start it on the scheduler's event loop.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        The engine of the recording.
    manifest : Manifest
        The run.

    Attributes
    ----------
    transitions : TransitionSource or PluginSource
        The source of the transitions.
    clients : LastClients
        The clients whose rows leave with the scheduler.
    """

    def __init__(self, scheduler: Any, engine: Engine, manifest: Manifest) -> None:
        self._scheduler, self._engine, self._manifest = scheduler, engine, manifest
        settings = engine.settings
        self._own: OwnTasks | None = None
        if manifest.only_client is not None:
            self._own = OwnTasks(scheduler, manifest.only_client)
        self._graph = GraphSource(
            manifest.run_id,
            Spans(scheduler),
            code=settings.code,
            inputs=settings.inputs,
            own=self._own,
        )
        self._events = EventSource(engine)
        self._plan = ClusterPlan(scheduler)
        self.clients = LastClients(scheduler, manifest.run_id)
        self.transitions = self._tap(settings)
        self._releases: MessageHook | None = None
        if self._own is not None:
            handlers = scheduler.stream_handlers
            self._releases = MessageHook(handlers, "client-releases-keys", self._own.released)
        self._loop = LoopMonitor(scheduler, engine.process)
        self._samples = SchedulerSamples(scheduler, engine, self.transitions, self._loop)
        self._jobs = JobSource(engine, scheduler)
        self._stuck = StuckSource(scheduler, engine, self.transitions.durations, self._own)
        self._registrations = RegistrationHook(scheduler, engine)
        self._stacks: LoopStacks | None = None
        if settings.sampling:
            self._stacks = LoopStacks(scheduler, engine, Frames())
        self._page: DashboardPage | None = None

    def _tap(self, settings: Settings) -> TransitionSource | PluginSource:
        if settings.tap == "auto":
            try:
                return TransitionSource(self._scheduler, code=settings.code, own=self._own)
            except UnexpectedLogError as error:
                logger.warning("dask-strata uses plugin calls on this version of Dask: %s", error)
        return PluginSource(self._scheduler, time.time, code=settings.code, own=self._own)

    @property
    def called_per_transition(self) -> Callable[..., None] | None:
        """The function to call for each transition, if Dask's log cannot be read."""
        transitions = self.transitions
        return transitions.transition if isinstance(transitions, PluginSource) else None

    def start(self, recorder: Source) -> None:
        """Start the engine with these sources and the scheduler's recorder."""
        scheduler, engine = self._scheduler, self._engine
        engine.start(
            recorder,
            self._samples,
            self._loop,
            SegmentNames(engine.folder, engine),
            self.transitions,
            self._events,
            self._graph,
            self._jobs,
            *record_logs(engine),
            *([] if self._stacks is None else [self._stacks]),
            *scaling_sources(scheduler, engine),
            *interruption_sources(engine.settings, engine.run_id, scheduler),
            *expose(engine),
            self._stuck,
            address=scheduler.address,
            name=getattr(scheduler, "name", None),
            tap=self.transitions.name,
        )
        self._loop.start()
        warn_if_missing(engine.settings)
        profile(engine)
        self._page = DashboardPage(scheduler, engine, self._manifest.name, self._stuck)

    def add_present(self) -> None:
        """Add rows for the workers, clients and tasks that are present at the start."""
        for address, ws in self._scheduler.workers.items():
            self._worker_row(address, ws, "present", None)
        for client in self._scheduler.clients:
            if client != "fire-and-forget":
                self.add("clients", client=client, action="connected")
        self._engine.call(self._add_present_tasks, "tasks before the recording")

    def _add_present_tasks(self) -> None:
        more = self._graph.present(self._scheduler)
        if more:
            reason = f"of the tasks before the recording, {MAX_PRESENT:,} are described"
            self.add("losses", what="present_tasks", count=more, reason=reason)

    def add(self, table: str, **row: Any) -> None:
        """Add a row with the present time."""
        self._engine.add(table, time=now_ns(), **row)

    def _worker_row(self, address: str, ws: Any, action: str, stimulus_id: str | None) -> None:
        with contextlib.suppress(Exception):  # a cluster object may be of any class
            self._plan.added(address, ws.name)
        self.add(
            "worker_events",
            worker=address,
            name=str(ws.name),
            action=action,
            stimulus_id=stimulus_id,
            nthreads=ws.nthreads,
            memory_limit_bytes=ws.memory_limit or None,
            reason=f"{ws.nthreads} threads, {ws.memory_limit} bytes, pid {ws.pid}",
        )

    # The plugin calls these methods when Dask calls its own, on the event loop.

    def submitted(self, client: str, tasks: Any, keys: Any, stimulus_id: str | None) -> None:
        """Record a submission."""
        self._graph.submitted(self._scheduler, client, tasks, keys, stimulus_id)

    def worker_added(self, worker: str) -> None:
        """Record that a worker has connected."""
        ws = self._scheduler.workers[worker]
        self._events.worker_added(worker)
        self._registrations.accepted(ws)
        self._worker_row(worker, ws, "add", None)

    def worker_removed(self, worker: str, stimulus_id: str, *, closing: bool) -> None:
        """Record that a worker is removed, before Dask forgets the tasks that failed with it.

        Parameters
        ----------
        worker : str
            Its address.
        stimulus_id : str
            What caused the removal.
        closing : bool
            Whether the scheduler closes: it ends its connections before workers could announce
            anything.
        """
        processing = self._events.processing_on(worker)
        self.transitions.worker_removed(worker, stimulus_id, processing)
        asked = "scheduler-close" if closing else self._asked(worker)
        self._events.worker_removed(worker, stimulus_id, asked)
        self._jobs.worker_left()

    def _asked(self, worker: str) -> str | None:
        """Return why the cluster object ended a worker, if it did; never raises."""
        try:
            return self._plan.removed(worker)
        except Exception as error:  # noqa: BLE001  a cluster object may be of any class
            logger.debug("dask-strata could not ask the cluster object: %s", error)
            return None

    def client_added(self, client: str) -> None:
        """Record that a client has connected."""
        self.add("clients", client=client, action="connect")

    def client_removed(self, client: str) -> None:
        """Record that a client has disconnected."""
        self.add("clients", client=client, action="disconnect")

    def restarted(self) -> None:
        """Record a restart of the cluster."""
        self.add("worker_events", action="restart-cluster")

    def logged(self, topic: str, msg: Any) -> None:
        """Record an event, or what a worker or client reports to this recorder by an event."""
        run_id = self._manifest.run_id
        if not isinstance(msg, dict):
            self._events.logged(topic, msg)
        elif topic == plugin_name(run_id):
            self.add(
                "losses",
                what="worker",
                reason=redact_text(clip(str(msg.get("not-recorded")), 1000)),
                where=clip(str(msg.get("worker")), 1000),
            )
        elif topic == job_topic(run_id):
            self._jobs.add_job(msg.get("system"), msg.get("job"))
        elif topic == client_topic(run_id):
            self.clients.logged(msg)
        elif not _OWN_TOPIC.fullmatch(str(topic)):  # those of another recording are no events
            self._events.logged(topic, msg)

    def detach(self) -> None:
        """Record the last log entries and counts, and restore the scheduler's own objects."""
        # The stack calls the others, too, if one raises.
        with contextlib.ExitStack() as restored:
            if self._page is not None:
                restored.callback(self._page.remove)
            restored.callback(self._registrations.remove)
            if self._stacks is not None:
                restored.callback(self._stacks.remove)
            if self._releases is not None:
                restored.callback(self._releases.remove)
            self._settle()
            self.transitions.remove()
            self._engine.flush()
            self._graph.end()  # the recorder's thread describes the remaining tasks
            self._samples.count(final=True)

    def _settle(self) -> None:
        """Wait up to 0.5 s until all transitions are recorded: a closed scheduler still makes some.

        On the event loop's own thread no transition can happen meanwhile, so this does not wait.
        """
        for _ in range(_SETTLE_TRIES):
            before = self.transitions.counter()
            self._engine.flush()
            if before == self.transitions.counter() == self.transitions.recorded:
                return
            time.sleep(_SETTLE_SECONDS)
