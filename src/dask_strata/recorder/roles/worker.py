"""The recorder of a worker: state machine, transfers, spills, executions, state over time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dask
from distributed.core import Status

from dask_strata.config import Settings, read_settings, understood
from dask_strata.recorder.environment.batch_systems import batch_systems
from dask_strata.recorder.environment.host_view import HostView
from dask_strata.recorder.environment.launched import note_worker
from dask_strata.recorder.environment.static_facts import add_static_facts
from dask_strata.recorder.exposition.series import expose
from dask_strata.recorder.interruptions import interruption_sources
from dask_strata.recorder.jobs import job_topic
from dask_strata.recorder.logs.redirect import redirect_output
from dask_strata.recorder.logs.source import record_logs
from dask_strata.recorder.pipeline.comm import sender
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.profiling.darshan_worker import add_darshan_facts
from dask_strata.recorder.profiling.fine_metrics import FineMetrics
from dask_strata.recorder.profiling.source import profile
from dask_strata.recorder.profiling.stacks import Frames, LoopStacks, TaskStacks
from dask_strata.recorder.sampling.tasks import TaskSampler
from dask_strata.recorder.sources.dask_logs import follow
from dask_strata.recorder.sources.executions import ExecutionHook
from dask_strata.recorder.sources.loop_lag import LoopMonitor
from dask_strata.recorder.sources.spills import SpillHook
from dask_strata.recorder.sources.transfers import ShuffleSource, TransferSource
from dask_strata.recorder.sources.worker_log import MAX_HELD, WorkerLogSource

_ENDED = (Status.closed, Status.failed)

#: A worker without running tasks that has been closing for so many seconds is taken to hang.
_CLOSING_SECONDS = 1.0


class WorkerRecorder(Source):
    """Records one worker. Create and close it on the worker's event loop.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    spec : dict
        The recording, as the scheduler's recorder announced it: run id, folder and settings.

    Raises
    ------
    SettingError
        A value of the settings is invalid in this version.
    UnexpectedLogError
        Dask's logs on the worker do not have the expected format.
    """

    def __init__(self, worker: Any, spec: dict[str, Any]) -> None:
        self._worker = worker
        #: Called once on the recorder's thread, when the scheduler has answered a heartbeat: the
        #: worker then has a connection for requests, and the recorder needs to open none.
        self.on_heartbeat: Callable[[], None] | None = None
        self._first_delay = worker.scheduler_delay
        self._address = worker.address
        self._spec = spec
        self._hangs_from: float | None = None
        settings = read_settings(understood(spec["settings"])[0])
        logs = follow(
            (worker.state, "log"),
            (worker, "transfer_incoming_log"),
            (worker, "transfer_outgoing_log"),
        )
        self._attached: list[Any] = list(logs)
        try:
            self._record(settings, *logs)
        except BaseException:
            self._remove()
            raise

    def _record(self, settings: Settings, log: Any, incoming: Any, outgoing: Any) -> None:
        worker, spec = self._worker, self._spec
        send = sender(worker.scheduler, f"dask-strata-{spec['run']}", worker.loop)
        self._engine = engine = Engine("worker", spec["run"], Path(spec["folder"]), settings, send)
        engine.kill_bytes = _kill_bytes(worker)
        self._first = worker.state.transition_counter
        of_executions = self._sources_of_executions(settings)
        self._loop = LoopMonitor(worker, engine.process, self._address, self._sampler)
        self._attached.append(self._loop)
        held = [ts.key for ts in worker.state.tasks.values() if ts.state == "memory"]
        self._log = WorkerLogSource(log, self._address, held[:MAX_HELD])
        spills = SpillHook(worker, self._address)
        self._attached.append(spills)
        shuffles = ShuffleSource(worker, engine)
        self._attached.append(shuffles)
        of_logs = [*redirect_output(worker, engine), *record_logs(engine, self._address)]
        self._attached += of_logs
        transfers = TransferSource(worker, incoming, outgoing, engine)
        interruptions = interruption_sources(settings, engine.run_id, worker, self._address)
        self._attached += interruptions
        series = expose(engine)
        self._attached += series
        metrics = FineMetrics(worker, engine)
        sources = (self, self._log, transfers, shuffles, spills, self._loop, metrics)
        engine.start(
            *sources,
            *of_executions,
            *of_logs,
            *interruptions,
            *series,
            *self._sources_of_stacks(settings),
            address=self._address,
            name=str(worker.name),
            nthreads=worker.state.nthreads,
            memory_limit_bytes=worker.memory_manager.memory_limit or None,
            tap="log",
        )
        if len(held) > MAX_HELD:
            engine.add(
                "losses",
                time=now_ns(),
                what="replicas",
                count=len(held) - MAX_HELD,
                reason=f"of the results that the worker held at the start, {MAX_HELD:,} are listed",
                where=engine.process,
            )
        engine.call(self._add_memory_limits, "limits of memory")
        self._loop.start()
        profile(engine)

    def _add_memory_limits(self) -> None:
        limits = memory_limits(self._worker)
        self._engine.add("memory_limits", time=now_ns(), worker=self._address, **limits)

    def _sources_of_executions(self, settings: Settings) -> list[Source]:
        """Attach the sources of executions that the settings request, and return them."""
        self._sampler: TaskSampler | None = None
        if not settings.attempts:
            return []
        executions = ExecutionHook(
            self._worker, self._address, opens=settings.inputs, samples=settings.sampling
        )
        self._attached.append(executions)
        if not settings.sampling:
            return [executions]
        self._sampler = TaskSampler(self._address, executions.sampled)
        return [executions, self._sampler]

    def _sources_of_stacks(self, settings: Settings) -> list[Source]:
        """Attach the sources of Dask's statistical profile, if the settings request samples."""
        if not settings.sampling:
            return []
        frames = Frames()
        tasks = TaskStacks(self._worker, self._engine, frames)
        self._attached.append(tasks)
        loop = LoopStacks(self._worker, self._engine, frames, self._address)
        self._attached.append(loop)
        return [tasks, loop]

    async def close(self) -> None:
        """End the recording, if that cannot wait until the worker has closed.

        A closing worker that sends its frames over its own connections is recorded until it closes
        them. A closing worker that writes a file is recorded until it has closed; see `end_reason`.
        """
        if self._worker.status in (Status.running, Status.paused):
            await self._engine.finish_and_wait("detached")
        elif self._engine.sink.transport == "comm":
            await self._engine.finish_and_wait("closed")
        else:
            self._engine.flush()
            self._add_count(final=True)
            self._engine.flush()

    def facts(self) -> Iterable[Callable[[], None]]:
        """Return the actions that gather facts of the worker's process."""
        return [
            self._report_job,
            lambda: note_worker(self._spec),
            lambda: add_darshan_facts(self._engine),
            lambda: add_static_facts(self._engine, self._spec),
        ]

    def _report_job(self) -> None:
        """Report the batch job of this process to the scheduler, which asks for its state."""
        topic = job_topic(self._spec["run"])
        for system, variable in batch_systems(HostView(os.environ, Path("/proc"), Path("/sys"))):
            job = {"system": system, "job": os.environ[variable]}
            self._worker.loop.add_callback(self._worker.log_event, topic, job)

    def end_reason(self) -> str | None:
        """Return ``"closed"`` if the worker has closed, or hangs while it closes.

        A worker and its nanny that close at the same time may wait for each other, until the nanny
        kills the process.
        """
        status, state = self._worker.status, self._worker.state
        if status in _ENDED:
            return "closed"
        if status is not Status.closing or state.executing or state.long_running:
            self._hangs_from = None
            return None
        now = time.monotonic()
        if self._hangs_from is None:
            self._hangs_from = now + _CLOSING_SECONDS
        return "closed" if now >= self._hangs_from else None

    def detach(self) -> None:
        """Record the last log entries and counts, and restore the worker's own objects."""
        self._engine.flush()
        self._add_count(final=True)
        self._remove()

    def _remove(self) -> None:
        # The stack calls the others, too, if one raises.
        with contextlib.ExitStack() as stack:
            for attached in reversed(self._attached):
                stack.callback(attached.remove)

    def sample(self) -> None:
        """Sample Dask's counter and the worker's state."""
        self._count()
        self._sample_state()
        # Each heartbeat changes the worker's estimate of its offset to the scheduler.
        if self.on_heartbeat is not None and self._worker.scheduler_delay != self._first_delay:
            answered, self.on_heartbeat = self.on_heartbeat, None
            answered()

    def _count(self) -> None:
        # On the event loop, between transitions: Dask counts a transition before it logs it.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._worker.loop.add_callback(self._count_between)

    def _count_between(self) -> None:
        if not self._engine.finished:
            self._add_count(final=False)

    def _add_count(self, *, final: bool) -> None:
        value = self._worker.state.transition_counter - self._first
        self._engine.count("worker.transitions", value, recorded=self._log.recorded, final=final)

    def _sample_state(self) -> None:
        worker, recent = self._worker, self._worker.monitor.recent()
        managed, spilled = _data_bytes(worker)
        rss = int(recent["memory"])
        self._engine.add(
            "worker_samples",
            time=now_ns(),
            worker=self._address,
            seen_by="worker",
            status=worker.status.name,
            executing=worker.state.executing_count,
            ready=len(worker.state.ready),
            in_memory=len(worker.data),
            managed_bytes=managed,
            unmanaged_bytes=None if managed is None else max(0, rss - managed),
            spilled_bytes=spilled,
            rss_bytes=rss,
            cpu_percent=recent["cpu"],
            read_bytes_per_second=recent.get("host_disk_io.read_bps"),
            write_bytes_per_second=recent.get("host_disk_io.write_bps"),
            net_read_bytes_per_second=recent.get("host_net_io.read_bps"),
            net_write_bytes_per_second=recent.get("host_net_io.write_bps"),
            num_fds=recent.get("num_fds"),
            loop_lag_seconds=self._loop.lag(),
            transfer_incoming=worker.state.transfer_incoming_count,
            transfer_outgoing=worker.transfer_outgoing_count,
        )
        # Dask's monitor has these names only where NVML answers, and reads it itself.
        if (utilization := recent.get("gpu_utilization")) is not None:
            self._engine.add(
                "gpu_samples",
                time=now_ns(),
                worker=self._address,
                name=getattr(worker.monitor, "gpu_name", None),
                utilization=float(utilization),
                used_bytes=recent.get("gpu_memory_used"),
                total_bytes=recent.get("gpu-memory-total"),
            )


def _kill_bytes(worker: Any) -> float | None:
    """Return the memory beyond which the worker's nanny kills its process; None if it does not."""
    limit = worker.memory_manager.memory_limit
    share = dask.config.get("distributed.worker.memory.terminate", False)
    return limit * share if limit and share and worker.nanny else None


def memory_limits(worker: Any) -> dict[str, int | None]:
    """Return the sizes of a worker's memory from which Dask acts, as in ``memory_limits``.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    """
    manager = worker.memory_manager
    limit = manager.memory_limit or None
    found: dict[str, int | None] = {"limit_bytes": limit}
    for name in ("target", "spill", "pause"):
        share = getattr(manager, f"memory_{name}_fraction", None)
        found[f"{name}_bytes"] = int(limit * share) if limit and share else None
    kill = _kill_bytes(worker)
    found["terminate_bytes"] = None if kill is None else int(kill)
    return found


def _data_bytes(worker: Any) -> tuple[int | None, int | None]:
    """Return the bytes of results in memory, and on disk or None if that is unknown."""
    fast = getattr(worker.data, "fast", None)
    total = getattr(fast, "total_weight", None)
    spilled = getattr(worker.data, "spilled_total", None)
    if total is None:
        return worker.state.nbytes, None
    return int(total), None if spilled is None else int(spilled.disk)
