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
from pathlib import Path
from typing import Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_strata.config import VERSION, Settings, read_settings, understood
from dask_strata.recorder.copying.place import sees, spool_folder
from dask_strata.recorder.copying.sender import CLOSE_SECONDS, Senders, SentRun
from dask_strata.recorder.environment.static_facts import add_static_facts
from dask_strata.recorder.pipeline.anonymize import with_secret
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.writer_thread import WriterThread
from dask_strata.recorder.plugins import (
    METADATA,
    dumps_nanny_plugin,
    dumps_worker_plugin,
    plugin_name,
)
from dask_strata.recorder.roles.detach import detach_all
from dask_strata.recorder.roles.scheduler_sources import SchedulerSources
from dask_strata.recorder.streaming import SenderProcess, with_absolute_stream
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
from dask_strata.store.segments.replacing import Replacing
from dask_strata.store.sinks import RelaySink

logger = logging.getLogger("dask_strata")

#: Delay in seconds after which a run that nobody fetches is reported.
_KEPT_SECONDS = 10

#: Longest wait of a closing scheduler for workers and nannies that send their last rows to it.
_LAST_FRAMES_SECONDS = 3

#: Longest wait for clients, of which each may gather facts for 3 s at its end.
_LAST_CLIENTS_SECONDS = 4

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
        settings = with_absolute_stream(settings)
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
        self._sources: SchedulerSources | None = None
        self._relay: WriterThread | None = None
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
        manifest = replace(self.manifest, scheduler=facts)
        if self.settings.leave_out:
            replacing = Replacing(self.settings)
            only = replacing.text(manifest.only_client)  # a client's id has its host's card
            manifest = replace(manifest, scheduler=replacing.facts(facts), only_client=only)
        spooled = self.marker is not None and not sees(self.marker)
        if is_url(self.settings.runs):
            self.folder = upload_folder(self.settings, self.folder.name)
        elif spooled:
            self.folder = spool_folder(self.folder.name)
        self._sent = SentRun(self.run_id, self.folder, socket.gethostname(), spooled=spooled)
        self._scheduler = scheduler
        try:
            manifest.write(self.folder, self.settings.access)
            if is_url(self.settings.runs):
                self._upload = await self._started_upload()
            self._engine = Engine("scheduler", self.run_id, self.folder, self.settings)
            spec = self._attach(scheduler, self._engine)
            if self.settings.stream is not None:
                SenderProcess(self.folder, self.settings.stream).start()
            # Nannies first: they read the output that their workers then send them.
            await scheduler.register_nanny_plugin(
                comm=None, plugin=dumps_nanny_plugin(spec), name=self.name, idempotent=False
            )
            await scheduler.register_worker_plugin(
                comm=None, plugin=dumps_worker_plugin(spec), name=self.name, idempotent=False
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
        scheduler.handlers[self.name] = self._receive_frame
        self._sources = SchedulerSources(scheduler, engine, self.manifest)
        if (transition := self._sources.called_per_transition) is not None:
            # This instance attribute shadows the class's method, which does nothing.
            self.__dict__["transition"] = transition
        self._sources.start(self)
        engine.stop_cluster = self.stop
        # Add the plugin before the others are sent, so that it misses no worker or client.
        scheduler.add_plugin(self, name=self.name, idempotent=True)
        self._sources.add_present()
        self._spec = {
            "run": self.run_id,
            **self._sent.facts,
            # Only the scheduler's process uses secrets of the places.
            "settings": replace(
                self.settings, runs=shown(self.settings.runs), stream=None
            ).chosen(),
            "owner": self.owner,
            "only_client": self.manifest.only_client,
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

    def _recording_sources(self) -> SchedulerSources | None:
        return self._sources if self.recording else None

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
        self,
        scheduler: Any,  # noqa: ARG002  Dask passes it by name
        *,
        client: str,
        tasks: Any,
        keys: Any,
        **kwargs: Any,
    ) -> None:
        """Record a submission."""
        if (sources := self._recording_sources()) is not None:
            sources.submitted(client, tasks, keys, kwargs.get("stimulus_id"))

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ARG002  as above
        """Record that a worker has connected."""
        if (sources := self._recording_sources()) is not None:
            sources.worker_added(worker)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **_: Any) -> None:
        """Record that a worker is removed."""
        if (sources := self._recording_sources()) is not None:
            sources.worker_removed(worker, stimulus_id, closing=scheduler.status in _CLOSING)

    def add_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002  as above
        """Record that a client has connected."""
        if (sources := self._recording_sources()) is not None:
            sources.client_added(client)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Record that a client has disconnected; end the recording if it was started by it."""
        if (sources := self._recording_sources()) is not None:
            sources.client_removed(client)
            if client == self.owner and scheduler.status is Status.running:
                scheduler.loop.add_callback(self.stop, "its client disconnected")

    def restart(self, scheduler: Any) -> None:  # noqa: ARG002  as above
        """Record a restart of the cluster; announce the run again, as Dask cleared its metadata."""
        if (sources := self._recording_sources()) is not None:
            self._announce()
            sources.restarted()

    def log_event(self, topic: str, msg: Any) -> None:
        """Record a logged event."""
        if (sources := self._recording_sources()) is not None:
            sources.logged(topic, msg)

    async def before_close(self) -> None:
        """Flush: the process may exit right after the scheduler has closed.

        Processes that send their rows to the scheduler have to send the last of them before. If a
        client fetches the run, wait until it has everything: the connections close next.
        """
        if self.recording and self._relayed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._detach_all(), _LAST_FRAMES_SECONDS)
        await self._end_clients()
        if self._engine is not None:
            self._engine.flush()
        if self.recording and self._sent.spooled and self._sent.is_asked():
            until = time.monotonic() + CLOSE_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stop("closed"), CLOSE_SECONDS)
            if await self._sent.delivered(until - time.monotonic()):
                self._sent.remove_spool()
            self._report_kept()

    # Frames of processes that cannot write the run's folder arrive over Dask's comms.

    async def _receive_frame(self, process: str, frame: bytes) -> None:
        self._relayed = True
        if self._relay is None:
            logger.warning("dask-strata rejected a frame of %a: its run has ended", process)
            return
        try:
            self._relay.put(RelaySink.label(process, bytes(frame)), 0)
        except (ValueError, TypeError) as error:
            logger.warning("dask-strata rejected a frame: %s", error)

    async def stop(self, reason: str = "detached") -> None:
        """Stop recording the whole cluster, and detach from all its processes.

        Parameters
        ----------
        reason : str, optional
            Recorded as the scheduler's ``exit_reason``.
        """
        if self._engine is None or self._engine.finished:
            return
        scheduler, engine, sources = self._scheduler, self._engine, self._sources
        await self._detach_all()
        await self._end_clients()
        await engine.finish_and_wait(reason)
        if sources is not None:
            sources.clients.remove()
        if self._upload is not None:
            await self._upload.ended()
        if self._sent.spooled and self._relay is not None:
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
        if self._engine is None or not self._engine.ended:
            return
        self._engine = self._sources = self._relay = self._upload = None

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
        if (sources := self._recording_sources()) is None:
            return
        for client in await sources.clients.end(_LAST_CLIENTS_SECONDS):
            loss = f"the last rows of {client} did not arrive within {_LAST_CLIENTS_SECONDS} s"
            logger.warning("dask-strata: %s", loss)
            self._add("losses", what="client", reason=loss, where=client)

    async def discard(self) -> None:
        """Remove a run that is spooled for a client, which does not want it any more."""
        if self._sent.spooled:
            senders = Senders.of(self._scheduler)
            await senders.on_thread(self._sent.remove_spool)
            senders.remove(self.run_id)

    def _report_kept(self) -> None:
        """Log where a spooled run is that its client has not fetched."""
        if self._sent.folder.exists() and not self._sent.is_asked():
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
        scheduler = self._scheduler
        # The stack calls the others, too, if one raises.
        with contextlib.ExitStack() as restored:
            restored.callback(self._revoke)
            restored.callback(scheduler.handlers.pop, self.name, None)
            restored.callback(self.__dict__.pop, "transition", None)
            if self._relay is not None:
                restored.callback(self._relay.close)
            if not self._sent.spooled:
                restored.callback(Senders.of(scheduler).remove, self.run_id)
            if self._sources is not None:
                self._sources.detach()


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
