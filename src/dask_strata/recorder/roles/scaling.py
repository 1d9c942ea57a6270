"""Adaptive scaling: the decisions of cluster objects, and the load that Dask derives them from.

Dask's `Adaptive` requests a number of workers from the scheduler at an interval, decides, and
appends each decision to its log. The scheduler's handler of the request has the reasons; the log is
where the cluster object is, which may be another process.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dask.utils import parse_timedelta
from distributed import Scheduler

from dask_strata.recorder.jobs.clusters import clusters_of
from dask_strata.recorder.pipeline.engine import Engine, now_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip
from dask_strata.recorder.roles.handlers import HandlerHook

_HANDLER = "adaptive_target"

#: Shortest time in seconds between two rows of the same number of workers.
_INTERVAL = 1.0

#: Share of the memory limits that results may fill before Dask requests more workers.
_FULL = 0.6

#: Most names of workers in a row, and the length of each.
_MOST_WORKERS, _NAME = 1_000, 200


def remote_clusters(client: Any) -> list[Any]:
    """Return the clusters of this process whose scheduler, a client's, is in another process.

    Parameters
    ----------
    client : distributed.Client
        The client.
    """
    module = sys.modules.get("distributed.deploy.spec")
    with suppress(RuntimeError):  # another thread creates a cluster
        clusters = list(module.SpecCluster._instances) if module is not None else []  # noqa: SLF001
        address = getattr(client.scheduler, "address", None)
        return [
            each
            for each in clusters
            if not isinstance(getattr(each, "scheduler", None), Scheduler)
            and getattr(each, "scheduler_address", None) == address
        ]
    return []


class _Log(deque[Any]):
    """Dask's log of decisions, which passes each one on."""

    listeners: list[Callable[[Any], None]]

    def append(self, entry: Any) -> None:
        """Append a decision."""
        super().append(entry)
        for listener in list(self.listeners):
            listener(entry)


class DecisionSource(Source):
    """Makes rows of ``adaptive_log``.

    Parameters
    ----------
    engine : Engine
        Gets the rows.
    clusters : callable
        Returns the cluster objects of this process.
    """

    def __init__(self, engine: Engine, clusters: Callable[[], list[Any]]) -> None:
        self._engine, self._clusters = engine, clusters
        self._begun = time.time()
        self._followed: list[tuple[Any, _Log, Callable[..., None]]] = []
        self._ended = False

    def sample(self) -> None:
        """Follow clusters that have become adaptive; called on the recorder's thread."""
        for cluster in self._clusters():
            adaptive = getattr(cluster, "_adaptive", None)
            if adaptive is None or any(adaptive is each for each, _, _ in self._followed):
                continue
            # Dask appends on this loop, so that no entry is added meanwhile.
            with suppress(RuntimeError):  # the loop is closed
                cluster.loop.add_callback(
                    self._engine.call, lambda c=cluster: self._follow(c), _WHAT
                )

    def _follow(self, cluster: Any) -> None:
        adaptive = cluster._adaptive  # noqa: SLF001  there is no public one
        log = getattr(adaptive, "log", None)
        if self._ended or not isinstance(log, deque):
            return
        if any(adaptive is each for each, _, _ in self._followed):
            return

        def decided(entry: Any) -> None:
            self._engine.call(lambda: self._add(cluster, *entry, now=True), _WHAT)

        for moment, decision in list(log):
            if moment >= self._begun:
                self._add(cluster, moment, decision, now=False)
        if not isinstance(log, _Log):
            log = _Log(log, log.maxlen)
            log.listeners = []
            adaptive.log = log
        log.listeners.append(decided)
        self._followed.append((adaptive, log, decided))

    def _add(self, cluster: Any, moment: float, decision: dict[str, Any], *, now: bool) -> None:
        """Add a row; before Dask scales, the cluster still has the workers of before."""
        adaptive = cluster._adaptive  # noqa: SLF001  as above
        names = [clip(str(name), _NAME) for name in decision.get("workers") or ()]
        before = [len(each) if now else None for each in _sets(adaptive)]
        target = decision.get("n")
        if target is None and before[0] is not None:
            target = max(0, before[0] - len(names))
        self._engine.add(
            "adaptive_log",
            time=int(moment * 1e9),
            cluster=redact_text(clip(str(getattr(cluster, "name", "")), _NAME)),
            status=str(decision.get("status")),
            target=target,
            n_plan=before[0],
            n_requested=before[1],
            n_observed=before[2],
            minimum=_whole(adaptive.minimum),
            maximum=_whole(adaptive.maximum),
            workers=json.dumps(names[:_MOST_WORKERS]) if names else None,
        )

    def detach(self) -> None:
        """Restore Dask's logs."""
        self._ended = True
        for adaptive, log, listener in self._followed:
            log.listeners.remove(listener)
            if not log.listeners and adaptive.log is log:
                adaptive.log = deque(log, log.maxlen)
        self._followed.clear()


_WHAT = "decisions of adaptive scaling"


def _sets(adaptive: Any) -> tuple[Any, Any, Any]:
    return adaptive.plan, adaptive.requested, adaptive.observed


def _whole(number: Any) -> int | None:
    return None if number is None or math.isinf(number) else int(number)


class TargetHook(HandlerHook, Source):
    """Makes rows of ``adaptive_targets``: replaces the scheduler's handler of these requests.

    Create it on the scheduler's event loop.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        Gets the rows.
    """

    def __init__(self, scheduler: Any, engine: Engine) -> None:
        self._scheduler = scheduler
        self._engine: Engine | None = engine
        self._last: tuple[int | None, float] = (None, 0.0)
        super().__init__(scheduler, _HANDLER, self._compute)

    def _compute(self, target_duration: Any = None, **others: Any) -> Any:
        load = None
        if self._engine is not None and not self._engine.finished:
            with suppress(Exception):  # attributes of another version of Dask
                load = _load(self._scheduler, target_duration)
        target = self.original(target_duration=target_duration, **others)
        if self._engine is not None and load is not None and isinstance(target, int):
            self._add(target, load)
        return target

    def _add(self, target: int, load: dict[str, Any]) -> None:
        last, then = self._last
        now = time.monotonic()
        settled = target == load["n_workers"] or now - then < _INTERVAL
        if self._engine is None or (target == last and settled):
            return
        self._last = target, now
        reason = _reason(target, load)
        self._engine.add("adaptive_targets", time=now_ns(), target=target, reason=reason, **load)

    def detach(self) -> None:
        """Restore the scheduler's handler, or take this one out from under that of another run."""
        self._engine = None
        self.restore()


def _load(scheduler: Any, target_duration: Any) -> dict[str, Any]:
    """Return what Dask computes the number of workers from; called on the event loop."""
    workers = list(scheduler.workers.values())
    return {
        "target_seconds": None if target_duration is None else parse_timedelta(target_duration),
        "occupancy_seconds": float(scheduler.total_occupancy),
        "processing": sum(len(ws.processing) for ws in workers),
        "queued": len(scheduler.queued),
        "no_worker": len(scheduler.unrunnable),
        "n_workers": len(workers),
        "n_threads": sum(ws.nthreads for ws in workers),
        "results_bytes": sum(ws.nbytes for ws in workers),
        "memory_limit_bytes": sum(ws.memory_limit or 0 for ws in workers),
    }


def _reason(target: int, load: dict[str, Any]) -> str | None:
    """Return why Dask computes a number of workers, see ``adaptive_targets``."""
    if target == load["n_workers"]:
        return None
    if target < load["n_workers"]:
        return "idle"
    limit, used = load["memory_limit_bytes"], load["results_bytes"]
    if 0 < _FULL * limit < used and target == 2 * load["n_workers"]:
        return "memory"
    return "work"


def scaling_sources(scheduler: Any, engine: Engine) -> tuple[Source, ...]:
    """Return the sources of a scheduler's process.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        Gets the rows.
    """
    decisions = DecisionSource(engine, lambda: clusters_of(scheduler))
    if _HANDLER in scheduler.handlers:
        return TargetHook(scheduler, engine), decisions
    return (decisions,)
