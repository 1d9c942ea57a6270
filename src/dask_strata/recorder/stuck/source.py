"""The scheduler's checks for stuck tasks and workers, each on its event loop, and their rows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from dask_strata.recorder.graphs.own_tasks import OwnTasks
from dask_strata.recorder.pipeline.engine import Engine, to_ns
from dask_strata.recorder.pipeline.redact import redact_text
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.stuck.durations import Durations
from dask_strata.recorder.stuck.found import Found
from dask_strata.recorder.stuck.running import long_running, silent_workers
from dask_strata.recorder.stuck.stacks import StackRequests, stack_text
from dask_strata.recorder.stuck.waiting import (
    RestingScheduler,
    StillWorkers,
    Unrunnable,
    name_of_key,
)
from dask_strata.schema import LEFT_OUT, wire_key
from dask_strata.schema.measured.stuck import CHECK_SECONDS
from dask_strata.store.segments.frames import Batch

#: Time between two checks in seconds; no worker is asked for stacks more often.
_INTERVAL_SECONDS = CHECK_SECONDS

#: Longest wait for stacks, in seconds.
_ANSWER_SECONDS = 3.0

#: Most findings of each kind in a check, and so most stacks and most workers that are asked.
_MOST = 10

#: Failed checks in a row after which there are no more: a version of Dask may have another form.
_MOST_FAILURES = 3

#: Most tasks of a silent worker that its reason names.
_NAMED = 3

#: Classes of facts without which stacks are not recorded, so that none is requested.
_HIDE_STACKS = frozenset({"code", "hosts", "paths", "users"})


class StuckSource(Source):
    """Make rows of ``stuck``.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    engine : Engine
        Its engine.
    durations : Durations
        Durations of finished executions.
    own : OwnTasks, optional
        The client whose tasks alone are recorded.

    Attributes
    ----------
    checked : float or None
        Time of the last check, in seconds since the epoch; None before the first.
    present : list of dict
        Its rows.
    """

    def __init__(
        self, scheduler: Any, engine: Engine, durations: Durations, own: OwnTasks | None = None
    ) -> None:
        self._scheduler, self._engine, self._own = scheduler, engine, own
        self._durations = durations
        self._unrunnable = Unrunnable(scheduler, hosts="hosts" not in engine.settings.leave_out)
        self._still = StillWorkers(scheduler)
        self._resting = RestingScheduler(scheduler)
        self._requests = StackRequests(scheduler)
        self._hides = bool(_HIDE_STACKS & set(engine.settings.leave_out))
        self._due = time.monotonic() + _INTERVAL_SECONDS
        self._task: asyncio.Future[None] | None = None
        self._ended, self._failures = False, 0
        self.checked: float | None = None
        self.present: list[dict[str, Any]] = []

    def rows(self) -> Iterable[Batch]:
        """Start a check on the event loop if one is due; its rows are added when it has ended."""
        now = time.monotonic()
        if now >= self._due and not self._ended:
            self._due = now + _INTERVAL_SECONDS
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._scheduler.loop.add_callback(self._begin)
        return ()

    def detach(self) -> None:
        """End the checks, and cancel the requests under way."""
        self._ended = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._scheduler.loop.add_callback(self._cancel)

    def _cancel(self) -> None:
        self._requests.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if not self._ended and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._guarded_check())

    async def _guarded_check(self) -> None:
        try:
            await self._check()
            self._failures = 0
        except Exception as error:  # noqa: BLE001  also attributes that a version of Dask lacks
            found = error
            self._failures += 1
            self._ended |= self._failures >= _MOST_FAILURES

            def fail() -> None:
                raise found

            self._engine.call(fail, "checks for stuck tasks")

    async def _check(self) -> None:
        now = time.time()
        running, silent, waiting = self._look(now)
        waiting += await self._resting.find(now)
        running, waiting = self._own_of(running)[:_MOST], self._own_of(waiting)[:_MOST]
        await self._add_stacks(running, silent)
        found = [*(f for f in silent if f.reason), *(f for f in running if _runs(f)), *waiting]
        rows = [self._row(one, now) for one in found]
        if not self._ended:
            self.checked, self.present = now, rows
            for row in rows:
                self._engine.add("stuck", **row)

    def _look(self, now: float) -> tuple[list[Found], list[Found], list[Found]]:
        """Return tasks that run too long, silent workers, and tasks that wait."""
        scheduler = self._scheduler
        waiting = [*self._unrunnable.find(now), *self._still.find(now)]
        silent = list(silent_workers(scheduler, now))[:_MOST]
        return long_running(scheduler, self._durations, now), silent, waiting

    def _own_of(self, found: list[Found]) -> list[Found]:
        own = self._own
        return found if own is None else [one for one in found if one.task.key in own]

    async def _add_stacks(self, running: list[Found], silent: list[Found]) -> None:
        """Request the stacks of running tasks, and an answer of silent workers.

        A silent worker that answers is not stuck. The task of an answer without its stack has
        ended meanwhile.
        """
        keys: dict[str, list[Any]] = {}
        for one in running:
            if self._hides:
                one.stack = LEFT_OUT
            else:
                keys.setdefault(one.worker.address, []).append(one.task.key)
        for one in silent:
            keys.setdefault(one.worker.address, [])
        if not keys:
            return
        answers = await self._requests.of(keys, _ANSWER_SECONDS)
        for one in running:
            answer = answers.get(one.worker.address)
            if answer is not None and not self._hides:
                one.stack = _stack_in(answer, one.task.key)
                one.ended = one.stack is None
        for one in silent:
            if one.worker.address not in answers and one.worker.address in self._scheduler.workers:
                one.reason = _silence(one, self._own)

    def _row(self, one: Found, now: float) -> dict[str, Any]:
        ws = one.worker
        return {
            "time": to_ns(now),
            "kind": one.kind,
            "key": None if one.task is None else wire_key(one.task.key),
            "prefix": None if one.task is None else one.task.prefix.name,
            "worker": None if ws is None else ws.address,
            "worker_name": None if ws is None else str(ws.name),
            "since": to_ns(one.since),
            "seconds": now - one.since,
            "typical_seconds": one.typical,
            "n_finished": one.n_finished,
            "reason": one.reason,
            "n_others": one.n_others,
            "stack": one.stack,
        }


def _runs(one: Found) -> bool:
    """Return whether a task still runs where it was found."""
    return not one.ended and one.task.processing_on is one.worker


def _stack_in(answer: Mapping[Any, list[str]], key: Any) -> str | None:
    frames = answer.get(key)
    return stack_text(frames) if frames else None


def _silence(one: Found, own: OwnTasks | None) -> str:
    """Return that a worker is silent, and its tasks; of these, only recorded ones have names."""
    ws = one.worker
    recorded = (ts for ts in ws.processing if own is None or ts.key in own)
    tasks, what = [ts for ts in ws.executing if ts.processing_on is ws], "it executed"
    if own is not None:
        tasks = [ts for ts in tasks if ts.key in own]
    if not tasks:
        tasks, what = list(islice(recorded, _NAMED)), "the scheduler has assigned to it"
    others = max(len(ws.executing), len(ws.processing)) - len(tasks[:_NAMED])
    names = ", ".join(name_of_key(ts.key) for ts in tasks[:_NAMED])
    more = f" and {others:,} more" if others > 0 else ""
    nothing = "no recorded task" if ws.executing or ws.processing else "no task"
    had = f"{what} {names}{more}" if tasks else f"{nothing} is assigned to it"
    return redact_text(f"it sends no heartbeat and does not answer a request; {had}")
