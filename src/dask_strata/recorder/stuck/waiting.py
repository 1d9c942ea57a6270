"""Tasks that wait for a result that nobody computes, and why."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.text import clip, safe_repr
from dask_strata.recorder.stuck.found import Found
from dask_strata.schema import LEFT_OUT
from dask_strata.schema.measured.stuck import NOBODY_COMPUTES

#: Time in seconds after which a task counts as stuck that no connected worker may run, that waits
#: while no worker is connected or running, and that does not move otherwise.
_UNRUNNABLE_SECONDS, _NO_WORKER_SECONDS, _STILL_SECONDS = 10.0, 60.0, 30.0

#: Time that a worker which is receiving data may take, as a multiple.
_RECEIVING_FACTOR = 4

#: Most tasks of a worker, or without one, that a check looks at, and most rows for them.
_LOOK, _ROWS = 200, 5

#: Most tasks of a scheduler at rest that a check looks at, and how many in one step of its loop.
_MAX_WALK, _WALK_STEP = 1_000_000, 2_000

#: Most dependencies that a reason names, and most characters of a key or reason.
_DEPENDENCIES, _KEY_CHARACTERS, _REASON_CHARACTERS = 3, 200, 1000


def name_of_key(key: Any) -> str:
    """Return the text of a key, cut if it is long."""
    return clip(key if isinstance(key, str) else safe_repr(key, _KEY_CHARACTERS), _KEY_CHARACTERS)


def _reason(parts: Iterable[str]) -> str:
    return redact_text(clip("; ".join(filter(None, parts)), _REASON_CHARACTERS))


class Unrunnable:
    """Tasks that no worker may run, and tasks that are queued while no worker is running.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    hosts : bool, optional
        Whether reasons may name workers and hosts, which users may choose freely.
    """

    def __init__(self, scheduler: Any, *, hosts: bool = True) -> None:
        self._scheduler, self._hosts = scheduler, hosts
        self._without_workers: float | None = None

    def find(self, now: float) -> list[Found]:
        """Return a task for each reason.

        Parameters
        ----------
        now : float
            The time in seconds since the epoch.
        """
        scheduler = self._scheduler
        waits = bool(scheduler.unrunnable or scheduler.queued)
        if scheduler.running or not waits:
            self._without_workers = None
            return self._restricted(now) if scheduler.running else []
        self._without_workers = self._without_workers or now
        if now - self._without_workers < _NO_WORKER_SECONDS:
            return []
        ts = next(iter(scheduler.unrunnable), None) or scheduler.queued.peek()
        others = len(scheduler.unrunnable) + len(scheduler.queued) - 1
        why = none_running(scheduler)
        return [Found(NOBODY_COMPUTES, self._without_workers, ts, reason=why, n_others=others)]

    def _restricted(self, now: float) -> list[Found]:
        scheduler, monotonic = self._scheduler, time.monotonic()
        found: dict[str, Found] = {}
        for ts, begun in islice(scheduler.unrunnable.items(), _LOOK):
            if monotonic - begun < _UNRUNNABLE_SECONDS:
                continue
            why = why_unrunnable(scheduler, ts, hosts=self._hosts)
            if why not in found and len(found) < _ROWS:
                since = now - (monotonic - begun)
                found[why] = Found(NOBODY_COMPUTES, since, ts, reason=why, n_others=0)
        rows = list(found.values())
        if rows:
            rows[0].n_others = len(scheduler.unrunnable) - len(rows)
        return rows


def none_running(scheduler: Any) -> str:
    """Return why no worker runs tasks.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """
    states = Counter(ws.status.name for ws in scheduler.workers.values())
    if not states:
        return "no worker is connected"
    parts = ", ".join(f"{n} {state}" for state, n in states.items())
    return f"no worker accepts tasks: {parts}"


def why_unrunnable(scheduler: Any, ts: Any, *, hosts: bool = True) -> str:
    """Return which restriction of a task no connected worker satisfies.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    ts : distributed.scheduler.TaskState
        The task.
    hosts : bool, optional
        Whether to name workers and hosts.
    """
    parts = []
    for name, required in (ts.resource_restrictions or {}).items():
        largest = max(scheduler.resources.get(name, {}).values(), default=0)
        if largest < required:
            offer = f"has more than {largest:g}" if largest else "has any"
            parts.append(
                f"it requires {required:g} of the resource {name!r}, of which no worker {offer}"
            )
    for restrictions, kind in (
        (ts.worker_restrictions, "workers"),
        (ts.host_restrictions, "hosts"),
    ):
        if restrictions:
            some = ", ".join(sorted(map(str, restrictions))[:_DEPENDENCIES])
            more = len(restrictions) - _DEPENDENCIES
            some += f" and {more} more" if more > 0 else ""
            some = some if hosts else LEFT_OUT
            parts.append(f"it may run only on the {kind} {some}")
    return _reason(parts) or "no connected worker may run it"


class StillWorkers:
    """Workers with free threads that do not begin the tasks that they were assigned.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: State of each such worker at the last check, and since when it is the same.
        self._since: dict[str, tuple[tuple[Any, ...], float]] = {}

    def find(self, now: float) -> list[Found]:
        """Return a task of each worker that has been in the same state for some time.

        Parameters
        ----------
        now : float
            The time in seconds since the epoch.
        """
        before, self._since = self._since, {}
        found = []
        for address, ws in self._scheduler.workers.items():
            if not ws.processing or not _waits(ws):
                continue
            state = _state(ws)
            known = before.get(address)
            since = known[1] if known is not None and known[0] == state else now
            self._since[address] = state, since
            if now - since >= _STILL_SECONDS * (_RECEIVING_FACTOR if _receives(ws) else 1):
                waiting = (ts for ts in islice(ws.processing, _LOOK) if ts not in ws.executing)
                ts = min(waiting, key=lambda ts: ts.priority or (), default=None)
                if ts is not None:
                    others = len(ws.processing) - len(ws.executing) - 1
                    why = why_not_begun(ts, ws)
                    one = Found(NOBODY_COMPUTES, since, ts, ws, reason=why)
                    one.n_others = max(others, 0)
                    found.append(one)
        return found


def _counts(ws: Any) -> dict[str, int]:
    counts = ws.metrics.get("task_counts")
    return counts if isinstance(counts, dict) else {}


def _receives(ws: Any) -> bool:
    return bool((ws.metrics.get("transfer") or {}).get("incoming_count"))


def _waits(ws: Any) -> bool:
    """Return whether a worker has tasks to begin, and does not begin them although it could.

    A task that waits for a resource which another task on the worker has is not stuck.
    """
    counts = _counts(ws)
    busy = counts.get("executing", 0)
    if ws.status.name == "paused":
        return not busy
    if busy >= ws.nthreads:
        return False
    waiting = len(ws.processing) - busy - counts.get("long-running", 0)
    return bool(waiting - counts.get("constrained", 0) > 0 if busy else waiting > 0)


def _state(ws: Any) -> tuple[Any, ...]:
    """Return facts that change whenever a worker does anything."""
    transfer = ws.metrics.get("transfer") or {}
    received = transfer.get("incoming_bytes"), transfer.get("incoming_count_total")
    first = next(iter(ws.processing)).key
    executing = frozenset(id(ts) for ts in ws.executing)
    return (first, len(ws.processing), len(ws.has_what), ws.nbytes, *received, executing)


def why_not_begun(ts: Any, ws: Any) -> str:
    """Return what an assigned task waits for, as far as the scheduler has it on record.

    Parameters
    ----------
    ts : distributed.scheduler.TaskState
        The task.
    ws : distributed.scheduler.WorkerState
        Its worker.
    """
    if ws.status.name == "paused":
        used = ws.metrics.get("memory")
        memory = f": its process uses {used / 2**30:.2f} GiB" if used else ""
        limit = f" of {ws.memory_limit / 2**30:.2f} GiB" if used and ws.memory_limit else ""
        return f"its worker has paused because of its memory{memory}{limit}"
    missing = [d for d in ts.dependencies if ws not in (d.who_has or ())]
    parts = [_held(d) for d in missing[:_DEPENDENCIES]]
    if len(missing) > _DEPENDENCIES:
        parts.append(f"and {len(missing) - _DEPENDENCIES} other dependencies")
    counts = _counts(ws)
    states = ", ".join(f"{n} {s}" for s, n in counts.items() if n and s not in _AT_REST)
    if not missing and not states:
        return "its worker has all its dependencies, and reports no task to execute"
    if not missing:
        parts.append("its worker has all its dependencies and does not begin it")
    if states:
        parts.append(f"tasks of the worker: {states}")
    return _reason(parts)


#: States of tasks on a worker in which it has nothing to do for them.
_AT_REST = frozenset({"memory", "released", "forgotten", "error"})


def _held(dependency: Any) -> str:
    name = name_of_key(dependency.key)
    holders = [ws.address for ws in islice(dependency.who_has or (), 1)]
    if holders:
        return f"its worker does not receive {name} from {holders[0]}"
    return f"it waits for {name}, which no worker has: its state is {dependency.state}"


class RestingScheduler:
    """Tasks that wait on the scheduler while nothing is assigned, queued or unrunnable.

    That is a state which only an error of Dask leaves. A scheduler at rest has nothing else to do
    on its loop, so that this may look at all its tasks: once, until something happens again.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._counter, self._since = -1, 0.0
        self._walked: tuple[int, list[Found]] | None = None

    async def find(self, now: float) -> list[Found]:
        """Return tasks that wait, if the scheduler has been at rest for some time.

        Parameters
        ----------
        now : float
            The time in seconds since the epoch.
        """
        scheduler = self._scheduler
        counter = scheduler.transition_counter
        if counter != self._counter:
            self._counter, self._since, self._walked = counter, now, None
        if now - self._since < _STILL_SECONDS or self._has_work():
            return []
        if self._walked is None or self._walked[0] != counter:
            self._walked = counter, await self._walk()
        return self._walked[1] if self._counter == counter else []

    def _has_work(self) -> bool:
        scheduler = self._scheduler
        assigned = any(ws.processing for ws in scheduler.workers.values())
        return bool(assigned or scheduler.unrunnable or scheduler.queued)

    async def _walk(self) -> list[Found]:
        waiting: list[Any] = []
        n = 0
        tasks: Iterator[Any] = iter(self._scheduler.tasks.values())
        try:
            for _ in range(_MAX_WALK // _WALK_STEP):
                step = list(islice(tasks, _WALK_STEP))
                found = [ts for ts in step if ts.state == "waiting"]
                n += len(found)
                waiting += found[: _ROWS - len(waiting)]
                if not step:
                    break
                await asyncio.sleep(0)
        except RuntimeError:  # a task has arrived or left: the scheduler is no longer at rest
            return []
        rows = [
            Found(NOBODY_COMPUTES, self._since, ts, reason=_waits_for(ts), n_others=0)
            for ts in waiting
        ]
        if rows:
            rows[0].n_others = n - len(rows)
        return rows


def _waits_for(ts: Any) -> str:
    waiting_on = list(islice(ts.waiting_on or (), _DEPENDENCIES))
    parts = [_held(dependency) for dependency in waiting_on]
    return _reason(parts) or "all its dependencies have results, and it is not assigned to a worker"
