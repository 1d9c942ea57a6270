"""The recorder of the scheduler: the run's folder, graphs, transitions, workers and clients.

It also sends recorders to workers and nannies, through Dask's own plugins.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_strata.config import VERSION, Settings, read_settings, understood
from dask_strata.recorder.copying.place import sees, spool_folder
from dask_strata.recorder.copying.sender import CLOSE_SECONDS, Senders, SentRun
from dask_strata.recorder.environment.static_facts import add_static_facts
from dask_strata.recorder.graphs.own_tasks import OwnTasks
from dask_strata.recorder.graphs.present_tasks import MAX_PRESENT
from dask_strata.recorder.jobs import job_topic
from dask_strata.recorder.jobs.source import JobSource
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
from dask_strata.recorder.roles.cluster_plan import ClusterPlan
from dask_strata.recorder.roles.dashboard import DashboardPage
from dask_strata.recorder.roles.detach import detach_all
from dask_strata.recorder.roles.last_clients import LastClients, client_topic
from dask_strata.recorder.roles.registrations import RegistrationHook
from dask_strata.recorder.sources.dask_logs import MessageHook, UnexpectedLogError
from dask_strata.recorder.sources.events import EventSource
from dask_strata.recorder.sources.graph import GraphSource
from dask_strata.recorder.sources.loop_lag import LoopMonitor
from dask_strata.recorder.sources.scheduler_samples import SchedulerSamples
from dask_strata.recorder.sources.segment_names import SegmentNames
from dask_strata.recorder.sources.transitions import PluginSource, TransitionSource
from dask_strata.recorder.upload import UploadThread
from dask_strata.recorder.upload import spool_folder as upload_folder
from dask_strata.schema.values import INTERRUPTED_UPLOAD
from dask_strata.store.copies.place import absolute, is_url, shown
from dask_strata.store.copies.upload import remove_spool
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

#: Number and duration of waits for the last transitions of a closed scheduler.
_SETTLE_TRIES, _SETTLE_SECONDS = 25, 0.02


#: Delay in seconds after which a run that nobody fetches is reported.
_KEPT_SECONDS = 10

#: Longest delay of a scheduler's close, for the last rows of processes that send them to it.
_LAST_FRAMES_SECONDS = 3

#: Attributes with the objects of a recording.
_OF_RECORDING = frozenset({
    "_events", "_graph", "_jobs", "_last_clients", "_page", "_plan", "_registrations", "_relay",
    "_releases", "_samples", "_transitions", "_upload",
})  # fmt: skip

_ENDED = (Status.closed, Status.failed)
_CLOSING = (Status.closing, Status.closed)


class SchedulerRecorder(SchedulerPlugin, Source):
    """Records one scheduler, and through it the whole cluster.

    Register it with the scheduler (`Client.register_plugin`, or a preload). It attaches in `start`,
    and detaches in `stop` or when the scheduler has closed.

    Parameters
    ----------
    settings : Settings
        What to record, how often, and where: a relative folder is relative to the working
        directory of the process that creates this object.
    name : str
        Name of the run.
    owner : str, optional
        Id of the client that started the recording, which ends when this client disconnects.
    marker : str, optional
        Path of a file that the client created in the folder of runs. If this scheduler does not
        see it, the run is spooled: written to a folder of the scheduler's own, from which the
        client fetches it.
    """

    idempotent = True

    # Dask calls `transition` of each plugin for each transition. If transitions are read from
    # Dask's log, this must do nothing: cheapest is a C method that accepts any arguments.
    transition = staticmethod("".format)

    def __init__(
        self, settings: Settings, name: str, owner: str | None = None, marker: str | None = None
    ) -> None:
        self.run_id = new_run_id()
        self.owner, self.marker = owner, marker
        self.name = plugin_name(self.run_id)
        self.settings = with_secret(replace(settings, runs=absolute(settings.runs)))
        created = now_ns()
        self.folder = Path(self.settings.runs) / run_folder_name(name, self.run_id, created)
        self.manifest = Manifest(
            run_id=self.run_id,
            name=name,
            created_ns=created,
            version=VERSION,
            session=settings.session,
            flush_interval_seconds=settings.flush_interval,
            named=bool(settings.name) or owner is not None,
            only_client=owner if settings.clients == "own" else None,
        )
        self._engine: Engine | None = None
        self._upload: UploadThread | None = None
        self._relayed = False  # whether a process has sent rows to this one

    def __reduce__(self) -> Any:
        facts = (self.settings, self.manifest, str(self.folder), self.owner, self.marker)
        return _restore, facts

    @property
    def recording(self) -> bool:
        """Whether the recording has started and not ended."""
        return self._engine is not None and not self._engine.finished

    async def start(self, scheduler: Any) -> None:
        """Create the run's folder, attach to the scheduler and send the other recorders.

        Raises
        ------
        OSError
            The run's folder cannot be created on the scheduler's machine.
        """
        if self._engine is not None:
            return
        facts = {"address": scheduler.address, "id": scheduler.id, "pid": os.getpid()}
        if self.settings.leave_out:
            facts = Replacing(self.settings).facts(facts)
        spooled = self.marker is not None and not sees(self.marker)
        if is_url(self.settings.runs):
            self.folder = upload_folder(self.settings, self.folder.name)
        elif spooled:
            self.folder = spool_folder(self.folder.name)
        self._sent = SentRun(self.run_id, self.folder, socket.gethostname(), spooled=spooled)
        self._scheduler = scheduler
        self._last_clients = LastClients(scheduler, self.run_id)
        try:
            replace(self.manifest, scheduler=facts).write(self.folder, self.settings.access)
            if is_url(self.settings.runs):
                self._upload = await self._started_upload()
            self._engine = Engine("scheduler", self.run_id, self.folder, self.settings)
            spec = self._attach(scheduler, self._engine)
            await scheduler.register_worker_plugin(
                comm=None, plugin=dumps_worker_plugin(spec), name=self.name, idempotent=False
            )
            await scheduler.register_nanny_plugin(
                comm=None, plugin=dumps_nanny_plugin(spec), name=self.name, idempotent=False
            )
        except BaseException:
            await self.stop("could not start")
            if self._upload is not None:
                self._upload.end()
            Senders.of(scheduler).remove(self.run_id)
            self._sent.remove_spool()
            raise

    async def _started_upload(self) -> UploadThread:
        upload = UploadThread(self.folder, self.settings)
        try:
            await upload.start()
        except BaseException:
            remove_spool(self.folder)
            raise
        upload.report_to(
            lambda reason: self._add("losses", what=INTERRUPTED_UPLOAD, reason=redact_text(reason))
        )
        return upload

    def _attach(self, scheduler: Any, engine: Engine) -> dict[str, Any]:
        """Start the recording of the scheduler; return the spec for workers and nannies."""
        relay = RelaySink(self.folder / SEGMENTS, SUFFIX)
        interval = self.settings.fsync_interval
        self._relay = WriterThread(relay, f"{self.name}-relay", lambda: None, interval)
        self._relay.start()
        client = self.manifest.only_client
        own = None if client is None else OwnTasks(scheduler, client)
        self._graph = GraphSource(
            self.run_id, code=self.settings.code, inputs=self.settings.inputs, own=own
        )
        self._events = EventSource(engine)
        self._plan = ClusterPlan(scheduler)
        self._transitions = self._tap(scheduler, own)
        self._releases = None
        if own is not None:
            handlers = scheduler.stream_handlers
            self._releases = MessageHook(handlers, "client-releases-keys", own.released)
        loop = LoopMonitor(scheduler, engine.process)
        self._samples = SchedulerSamples(scheduler, engine, self._transitions, loop)
        scheduler.handlers[self.name] = self._receive_frame
        self._jobs = JobSource(engine, scheduler)
        self._registrations = RegistrationHook(scheduler, engine)
        engine.start(
            self,
            self._samples,
            loop,
            SegmentNames(self.folder, engine),
            self._transitions,
            self._events,
            self._graph,
            self._jobs,
            address=scheduler.address,
            name=getattr(scheduler, "name", None),
            tap=self._transitions.name,
        )
        loop.start()
        warn_if_missing(self.settings)
        profile(engine)
        engine.stop_cluster = self.stop
        self._page = DashboardPage(scheduler, engine, self.manifest.name)
        # Add the plugin before the others are sent, so that it misses no worker or client.
        scheduler.add_plugin(self, name=self.name, idempotent=True)
        self._add_present(scheduler)
        engine.call(partial(self._add_present_tasks, scheduler), "tasks before the recording")
        self._spec = {
            "run": self.run_id,
            **self._sent.facts,
            "settings": replace(self.settings, runs=shown(self.settings.runs)).chosen(),
            "owner": self.owner,
            "only_client": client,
        }
        if self._upload is not None:
            self._spec["url"] = shown(self._upload.url)
        Senders.of(scheduler).add(self._sent)
        self._announce()
        return self._spec

    def _announce(self) -> None:
        Senders.of(self._scheduler).announce()
        self._scheduler.task_metadata.setdefault(METADATA, {})[self.run_id] = self._spec

    def _revoke(self) -> None:
        runs = self._scheduler.task_metadata.get(METADATA, {})
        runs.pop(self.run_id, None)
        if not runs:
            self._scheduler.task_metadata.pop(METADATA, None)

    def _tap(self, scheduler: Any, own: OwnTasks | None) -> TransitionSource | PluginSource:
        if self.settings.tap == "auto":
            try:
                return TransitionSource(scheduler, code=self.settings.code, own=own)
            except UnexpectedLogError as error:
                logger.warning("dask-strata uses plugin calls on this version of Dask: %s", error)
        source = PluginSource(scheduler, time.time, code=self.settings.code, own=own)
        # This instance attribute shadows the class's method, which does nothing.
        self.__dict__["transition"] = source.transition
        return source

    def _add_present(self, scheduler: Any) -> None:
        """Add rows for the workers and clients that are present at the start."""
        for address, ws in scheduler.workers.items():
            self._worker_row(address, ws, "present", None)
        for client in scheduler.clients:
            if client != "fire-and-forget":
                self._add("clients", client=client, action="connected")

    def _add_present_tasks(self, scheduler: Any) -> None:
        more = self._graph.present(scheduler)
        if more:
            reason = f"of the tasks before the recording, {MAX_PRESENT:,} are described"
            self._add("losses", what="present_tasks", count=more, reason=reason)

    def _worker_row(self, address: str, ws: Any, action: str, stimulus_id: str | None) -> None:
        with contextlib.suppress(Exception):  # a cluster object may be of any class
            self._plan.added(address, ws.name)
        self._add(
            "worker_events",
            worker=address,
            name=str(ws.name),
            action=action,
            stimulus_id=stimulus_id,
            nthreads=ws.nthreads,
            memory_limit_bytes=ws.memory_limit or None,
            reason=f"{ws.nthreads} threads, {ws.memory_limit} bytes, pid {ws.pid}",
        )

    def _started_engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the recorder has not been started")
        return self._engine

    def _add(self, table: str, **row: Any) -> None:
        """Add a row with the present time."""
        if self._engine is not None:
            self._engine.add(table, time=now_ns(), **row)

    # Dask calls these methods on the event loop.

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: Any, keys: Any, **kwargs: Any
    ) -> None:
        """Record a submission."""
        if self.recording:
            self._graph.submitted(scheduler, client, tasks, keys, kwargs.get("stimulus_id"))

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Record that a worker has connected."""
        if self.recording:
            self._events.worker_added(worker)
            self._registrations.accepted(scheduler.workers[worker])
            self._worker_row(worker, scheduler.workers[worker], "add", None)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **_: Any) -> None:
        """Record that a worker is removed, before Dask forgets the tasks that failed with it."""
        if self.recording:
            self._transitions.worker_removed(worker, stimulus_id)
            # A scheduler that closes ends its connections before workers could announce anything.
            asked = "scheduler-close" if scheduler.status in _CLOSING else self._asked(worker)
            self._events.worker_removed(worker, stimulus_id, asked)
            self._jobs.worker_left()

    def _asked(self, worker: str) -> str | None:
        """Return why the cluster object ended a worker, if it did; never raises."""
        try:
            return self._plan.removed(worker)
        except Exception as error:  # noqa: BLE001  a cluster object may be of any class
            logger.debug("dask-strata could not ask the cluster object: %s", error)
            return None

    def add_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002  Dask passes it by name
        """Record that a client has connected."""
        if self.recording:
            self._add("clients", client=client, action="connect")

    def remove_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002  Dask passes it by name
        """Record that a client has disconnected; end the recording if it was started by it."""
        if self.recording:
            self._add("clients", client=client, action="disconnect")
            self._last_clients.left(client)
            if client == self.owner and self._scheduler.status is Status.running:
                self._scheduler.loop.add_callback(self.stop, "its client disconnected")

    def restart(self, scheduler: Any) -> None:  # noqa: ARG002  Dask passes it by name
        """Record a restart of the cluster; announce the run again, as Dask cleared its metadata."""
        if self.recording:
            self._announce()
            self._add("worker_events", action="restart-cluster")

    def log_event(self, topic: str, msg: Any) -> None:
        """Record a logged event, or a worker's message that it is not recorded."""
        if not self.recording:
            return
        if topic == self.name and isinstance(msg, dict):
            self._add(
                "losses",
                what="worker",
                reason=redact_text(clip(str(msg.get("not-recorded")), 1000)),
                where=clip(str(msg.get("worker")), 1000),
            )
            return
        if topic == job_topic(self.run_id) and isinstance(msg, dict):
            self._jobs.add_job(msg.get("system"), msg.get("job"))
            return
        if topic == client_topic(self.run_id) and isinstance(msg, dict):
            self._last_clients.logged(msg)
            return
        self._events.logged(topic, msg)

    async def before_close(self) -> None:
        """Flush: the process may exit right after the scheduler has closed.

        Processes that send their rows to the scheduler have to send the last of them before. If a
        client fetches the run, wait until it has everything: the connections close next.
        """
        if self._engine is None:
            return
        if self.recording and self._relayed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._detach_all(), _LAST_FRAMES_SECONDS)
        if self.recording:
            await self._end_clients()
        self._engine.flush()
        if self.recording and self._sent.is_asked():
            self._sent.outlives = True
            until = time.monotonic() + CLOSE_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stop("closed"), CLOSE_SECONDS)
            if await self._sent.delivered(until - time.monotonic()):
                self._sent.remove_spool()
            self._report_kept()

    # Frames of processes that cannot write the run's folder arrive over Dask's comms.

    async def _receive_frame(self, process: str, frame: bytes) -> None:
        self._relayed = True
        try:
            self._relay.put(RelaySink.label(process, bytes(frame)), 0)
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("dask-strata rejected a frame: %s", error)

    async def stop(self, reason: str = "detached") -> None:
        """Stop recording the whole cluster, and detach from all its processes.

        Parameters
        ----------
        reason : str, optional
            Recorded as the scheduler's ``exit_reason``.
        """
        if not self.recording:
            return
        scheduler = self._scheduler
        await self._detach_all()
        await self._end_clients()
        await self._started_engine().finish_and_wait(reason)
        if self._upload is not None:
            await self._upload.ended()
        if self._sent.outlives:
            await Senders.of(scheduler).on_thread(self._relay.join, CLOSE_SECONDS)
            self._sent.end()
            scheduler.loop.call_later(_KEPT_SECONDS, self._report_kept)
        if self.name in scheduler.plugins:
            scheduler.remove_plugin(name=self.name)
        self._forget()

    def _forget(self) -> None:
        """Release the memory of the recording.

        Dask's registration of a worker refers to the plugin until the worker leaves.
        """
        if not self._started_engine().ended:
            return
        self._engine = None
        for name in _OF_RECORDING & vars(self).keys():
            delattr(self, name)

    async def _detach_all(self) -> None:
        """End the recordings of workers and nannies."""
        # Workers that join during detach see the revoked announcement and stop.
        self._revoke()
        async for error in detach_all(self._scheduler, self.name):
            loss = f"not every recorder could be detached: {error}"
            logger.warning("dask-strata: %s", loss)
            self._add("losses", what="recorders", reason=loss)

    async def _end_clients(self) -> None:
        """End the recordings of clients whose rows leave with this scheduler."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._last_clients.end(), _LAST_FRAMES_SECONDS)

    async def discard(self) -> None:
        """Remove a run that is spooled for a client, which does not want it any more."""
        if self._sent.spooled:
            senders = Senders.of(self._scheduler)
            await senders.on_thread(self._sent.remove_spool)
            senders.remove(self.run_id)

    def _report_kept(self) -> None:
        """Log where a spooled run is that its client has not fetched."""
        sent = self._sent
        if sent.spooled and sent.folder.exists() and not sent.is_asked():
            logger.warning(
                "dask-strata keeps run %s in %s: its client did not fetch it. While this scheduler "
                "runs, fetch it with: dask-strata fetch %s -o RUNS",
                self.run_id,
                self.folder,
                self._scheduler.address,
            )

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the actions that gather facts of the scheduler's process."""
        engine = self._started_engine()
        actions = [lambda: add_static_facts(engine)]
        if self.settings.fsync_interval is not None:
            actions.append(lambda: sync_run(self.folder))
        return actions

    def after_last_row(self) -> None:
        """Finish the upload, if the run's place is a URL."""
        if self._upload is not None:
            self._upload.end()

    def end_reason(self) -> str | None:
        """Return ``"closed"`` if the scheduler has closed."""
        return "closed" if self._scheduler.status in _ENDED else None

    def detach(self) -> None:
        """Record the last log entries and counts, and restore the scheduler's own objects."""
        engine, scheduler = self._started_engine(), self._scheduler
        # The stack calls the others, too, if one raises.
        with contextlib.ExitStack() as restored:
            restored.callback(self._revoke)
            restored.callback(scheduler.handlers.pop, self.name, None)
            restored.callback(self.__dict__.pop, "transition", None)
            restored.callback(self._relay.close)
            restored.callback(self._page.remove)
            restored.callback(self._registrations.remove)
            if not self._sent.outlives:
                restored.callback(Senders.of(scheduler).remove, self.run_id)
            if self._releases is not None:
                restored.callback(self._releases.remove)
            self._settle(engine)
            self._transitions.remove()
            engine.flush()
            self._graph.end()  # the recorder's thread describes the remaining tasks
            self._samples.count(final=True)

    def _settle(self, engine: Engine) -> None:
        """Wait up to 0.5 s until all transitions are recorded: a closed scheduler still makes some.

        On the event loop's own thread no transition can happen meanwhile, so this does not wait.
        """
        for _ in range(_SETTLE_TRIES):
            before = self._transitions.counter()
            engine.flush()
            if before == self._transitions.counter() == self._transitions.recorded:
                return
            time.sleep(_SETTLE_SECONDS)


def _restore(
    settings: Settings,
    manifest: Manifest,
    folder: str,
    owner: str | None,
    marker: str | None = None,
) -> SchedulerRecorder:
    # The client may have another version, with other settings.
    settings = read_settings(understood(vars(settings))[0])
    recorder = SchedulerRecorder(settings, manifest.name, owner, marker)
    recorder.run_id = manifest.run_id
    recorder.name = plugin_name(manifest.run_id)
    recorder.manifest = manifest
    recorder.folder = Path(folder)
    return recorder


class Detacher(SchedulerPlugin):
    """Ends the recording of a run when it is registered: a message in the form of a plugin.

    Parameters
    ----------
    run_id : str
        Id of the run.
    discard : bool, optional
        Whether to remove a run that is spooled for its client.
    """

    def __init__(self, run_id: str, *, discard: bool = False) -> None:
        self.run_id, self.discard = run_id, discard
        self.name = f"dask-strata-detach-{run_id}"

    async def start(self, scheduler: Any) -> None:
        """End the recording."""
        recorder = scheduler.plugins.get(plugin_name(self.run_id))
        if isinstance(recorder, SchedulerRecorder):
            await recorder.stop()
            if self.discard:
                await recorder.discard()
