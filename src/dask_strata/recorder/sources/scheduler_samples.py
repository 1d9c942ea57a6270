"""Samples of the scheduler and its workers over time, and Dask's counter of transitions."""

from __future__ import annotations

import contextlib
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sources.loop_lag import LoopMonitor
from dask_strata.recorder.sources.transitions import Transitions

#: Tries at reading a worker's occupancy, which may change during the reading.
_SUM_TRIES = 5


class SchedulerSamples(Source):
    """Make rows of ``counters``, ``worker_samples`` and ``scheduler_samples``.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        Gets the rows.
    transitions : Transitions
        Counts the rows of transitions, which `check` compares with Dask's counter.
    loop : LoopMonitor
        Measures the delays of the scheduler's event loop.
    """

    def __init__(
        self, scheduler: Any, engine: Engine, transitions: Transitions, loop: LoopMonitor
    ) -> None:
        self._scheduler, self._engine, self._transitions = scheduler, engine, transitions
        self._loop = loop

    def sample(self) -> None:
        """Sample the counter and the state; called on the recorder's thread."""
        # Count on the event loop: Dask counts a transition before it logs it.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._scheduler.loop.add_callback(self._count_between)
        self._sample_state()

    def _count_between(self) -> None:
        if not self._engine.finished:
            self.count(final=False)

    def count(self, *, final: bool) -> None:
        """Add a row of ``counters``; call it on the thread that runs Dask's transitions.

        Parameters
        ----------
        final : bool
            Whether this is the last value.
        """
        transitions = self._transitions
        self._engine.count(
            "scheduler.transitions",
            transitions.counter(),
            recorded=transitions.recorded,
            final=final,
        )

    def _sample_state(self) -> None:
        scheduler, add, now = self._scheduler, self._engine.add, now_ns()
        recent = scheduler.monitor.recent()
        loads = []
        for ws in list(scheduler.workers.values()):
            memory, load = ws.memory, _occupancy(ws)
            loads.append(load)
            add(
                "worker_samples",
                time=now,
                worker=ws.address,
                seen_by="scheduler",
                status=ws.status.name,
                processing=len(ws.processing),
                in_memory=len(ws.has_what),
                occupancy_seconds=load,
                managed_bytes=memory.managed,
                unmanaged_bytes=memory.unmanaged,
                spilled_bytes=memory.spilled,
                rss_bytes=memory.process,
                executing=ws.metrics.get("task_counts", {}).get("executing"),
                ready=ws.metrics.get("task_counts", {}).get("ready"),
                cpu_percent=ws.metrics.get("cpu"),
            )
        add(
            "scheduler_samples",
            time=now,
            tasks=len(scheduler.tasks),
            queued=len(scheduler.queued),
            no_worker=len(scheduler.unrunnable),
            workers=len(scheduler.workers),
            clients=len(scheduler.clients),
            occupancy_seconds=None if None in loads else sum(loads),
            rss_bytes=int(recent["memory"]),
            cpu_percent=recent["cpu"],
            loop_lag_seconds=self._loop.lag(),
        )


def _occupancy(ws: Any) -> float | None:
    """Return a worker's occupancy in seconds; None if it changes during each attempt.

    Dask sums it up from a mapping, which the event loop may change meanwhile.
    """
    for _ in range(_SUM_TRIES):
        try:
            return float(ws.occupancy)
        except (RuntimeError, KeyError):
            continue
    return None
