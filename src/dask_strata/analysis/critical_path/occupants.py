"""Who held what a segment of the critical path waited for.

A task that waits for a worker gets the thread of an earlier task: the executions on the thread on
which it ran later are the occupants, one after the other.

While a long collection of the garbage collector stops the thread of a task, or an event loop, the
occupant is the collector (kind ``gc``). While an event loop is blocked otherwise, it is

- the task that used the CPU meanwhile, if no other thread of the process could run Python;
- the GIL (kind ``gil``) if several tasks competed for it, or a call held it without using the CPU;
- the coroutine that ran on the loop as a task, or else the worker or scheduler, if other threads
  could run: then code on the loop itself blocked it.

Without measurements that show which of these applies, it is the task that ran longest on the worker
meanwhile. The same holds for a task whose thread waited for the GIL in such a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.critical_path.interruptions import Holder

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.data import PathData
    from dask_strata.analysis.critical_path.interruptions import Hold
    from dask_strata.analysis.critical_path.walk import Segment
    from dask_strata.analysis.series.columns import Array, Ints

#: Causes in which the rest of the run waited for the client.
CLIENT_CAUSES = frozenset({"graph", "scatter", "gather", "client", "nothing submitted"})

#: Causes in which a task waited for the thread of another one.
THREAD_CAUSES = frozenset({"waiting for a worker"})

#: Causes in which the task itself runs.
_OWN = frozenset({"compute", "I/O"})


#: The cause in which an event loop was blocked, and all causes that a hold of the GIL may explain.
_BLOCKED = "blocked event loop"
_HELD_UP = _OWN | THREAD_CAUSES | {_BLOCKED}

_NO_TIMES = np.empty(0, np.int64)
_NOTHING: tuple[Ints, Ints, Ints] = (_NO_TIMES, _NO_TIMES, _NO_TIMES)


@dataclass(frozen=True, slots=True)
class Occupant:
    """Who held the resource that a segment waited for.

    Attributes
    ----------
    kind : str
        task, worker, scheduler, client, gc (the garbage collector) or gil (threads that competed
        for the GIL).
    name : str or None
        Key of the task, also of the one whose thread ran the collection, or address of the worker;
        None for others.
    attempt : int or None
        Number of the attempt at the task.
    prefix, worker
        Of the task; for gil, of the one that ran longest meanwhile.
    thread : int or None
        Thread on which the task ran.
    """

    kind: str
    name: str | None = None
    attempt: int | None = None
    prefix: str | None = None
    worker: str | None = None
    thread: int | None = None


#: Start and stop of a part of a segment, and its occupant.
_Part = tuple[int, int, Occupant]


@dataclass(frozen=True, slots=True)
class _Executions:
    """Executions on a thread or a worker in order of their starts; none of them is empty.

    `reach` is the latest stop so far: executions of several threads overlap.
    """

    start: Ints
    stop: Ints
    attempt: Ints
    reach: Ints

    @classmethod
    def of(cls, rows: dict[str, Array]) -> _Executions:
        """Make them of columns in order of the starts."""
        start, stop, attempt = (rows[name] for name in ("start", "stop", "attempt"))
        return cls(start, stop, attempt, np.maximum.accumulate(stop))

    def during(self, a: int, b: int) -> tuple[Ints, Ints, Ints]:
        """Return starts, stops and attempts of the executions within an interval, clipped to it."""
        first = int(np.searchsorted(self.reach, a, side="right"))
        last = int(np.searchsorted(self.start, b, side="left"))
        start, stop, attempt = (each[first:last] for each in (self.start, self.stop, self.attempt))
        within = stop > a
        return (
            np.maximum(start[within], a),
            np.minimum(stop[within], b),
            attempt[within],
        )


class Occupants:
    """Find the occupant of each segment of a path.

    Parameters
    ----------
    data : PathData
        Columns of the run.
    """

    def __init__(self, data: PathData) -> None:
        self._data = data
        self._holds = data.interruptions
        self._workers: list[str] = []
        #: Executions by worker and thread, and by worker alone, where a segment waited for them.
        self._executions: dict[tuple[str, int | None], _Executions] = {}

    def of(self, segments: Iterable[Segment]) -> list[Segment]:
        """Return the segments with occupants; waits for a thread are divided by its executions.

        Parameters
        ----------
        segments : iterable of Segment
            Segments of the path in order.
        """
        found = list(segments)
        waiting = [s for s in found if s.cause in THREAD_CAUSES or s.cause == _BLOCKED]
        holds = [hold for s in found if s.cause in _HELD_UP for hold in self._holds_of(s)]
        workers = {s.worker for s in waiting} | {h.worker for h in holds if not h.collection}
        self._workers = sorted(worker for worker in workers if worker is not None)
        self._holds.read(holds)
        divided = [piece for segment in found for piece in self._divide(segment)]
        numbers = {o.attempt for _, o in divided if o is not None and o.attempt is not None}
        names = self._data.names_of(sorted(numbers)) if numbers else {}
        return [replace(s, occupant=_named(occupant, names)) for s, occupant in divided]

    def _holds_of(self, segment: Segment) -> list[Hold]:
        span = segment.worker, segment.start, segment.stop
        pauses = self._holds.pauses(*span)
        if segment.cause in THREAD_CAUSES:
            return pauses
        return [*pauses, *filter(_is_frozen, self._holds.blocks(*span))]

    def _divide(self, segment: Segment) -> Iterator[tuple[Segment, Occupant | None]]:
        if segment.cause in CLIENT_CAUSES:
            yield segment, Occupant("client")
        elif segment.cause in _OWN:
            yield from self._own(segment)
        elif segment.cause in THREAD_CAUSES:
            yield from self._by_thread(segment)
        elif segment.cause == _BLOCKED:
            yield from self._blocked(segment)
        elif segment.cause == "scheduler":
            yield segment, Occupant("scheduler")
        elif segment.cause == "not on record":
            yield segment, None
        else:
            yield segment, Occupant("worker", segment.worker)

    def _own(self, segment: Segment) -> Iterator[tuple[Segment, Occupant]]:
        """Divide the time of a function by the holds that stopped its thread."""
        own = Occupant("task", segment.key, segment.attempt)
        span = segment.worker, segment.start, segment.stop
        pauses = self._collections(segment, segment.attempt)
        blocks = [
            _part(block, self._blocker(block))
            for block in self._holds.blocks(*span)
            if block.frozen and block.is_held and self._holds.stopped(block, segment.attempt)
        ]
        others = [part for part in blocks if part[2] != _task(segment.attempt)]
        yield from _cut(segment, [pauses, others], own)

    def _collections(self, segment: Segment, attempt: int | None) -> list[_Part]:
        """Return the collections that stopped an attempt on the thread of a segment."""
        return [
            _part(pause, _collector(pause))
            for pause in self._holds.pauses(segment.worker, segment.start, segment.stop)
            if pause.thread == segment.thread or self._holds.stopped(pause, attempt)
        ]

    def _blocked(self, segment: Segment) -> Iterator[tuple[Segment, Occupant]]:
        """Divide the time of a blocked event loop, the worker's or else the scheduler's."""
        layers = []
        for server in dict.fromkeys((segment.worker, None)):
            span = server, segment.start, segment.stop
            pauses = [_part(pause, _collector(pause)) for pause in self._holds.pauses(*span)]
            parts: list[_Part] = []
            for block in self._holds.blocks(*span):
                a, b = max(block.start, segment.start), min(block.stop, segment.stop)
                parts += _layered(a, b, [pauses], self._blocker(block))
            layers.append(parts)
        rest = self._longest(segment.worker, segment.start, segment.stop)
        yield from _cut(segment, layers, rest or Occupant("worker", segment.worker))

    def _blocker(self, block: Hold) -> Occupant:
        """Return who blocked an event loop, apart from the garbage collector."""
        worker = block.worker
        if worker is None:
            return Occupant("scheduler")
        loop = Occupant("worker", worker)
        longest = self._longest(worker, block.start, block.stop)
        if block.frozen_seconds is None:
            return longest or loop
        if not block.frozen:
            threads = self._data.loop_threads.get(worker, ())
            coroutines = (self._longest(worker, block.start, block.stop, t) for t in threads)
            return next(filter(None, coroutines), loop)
        attempts = self._during(worker, None, block.start, block.stop)[2].tolist()
        kind, holder = self._holds.holder(block, sorted(set(attempts)))
        if kind is Holder.TASK:
            return _task(holder)
        if kind is Holder.NO_TASK or longest is None:
            return loop
        return longest if kind is Holder.UNKNOWN else replace(longest, kind="gil")

    def _by_thread(self, segment: Segment) -> Iterator[tuple[Segment, Occupant | None]]:
        at = segment.start
        columns = self._during(segment.worker, segment.thread, segment.start, segment.stop)
        for start, stop, attempt in zip(*(each.tolist() for each in columns), strict=True):
            a = max(start, at)
            if stop <= a:
                continue
            if a > at:
                yield replace(segment, start=at, stop=a), None
            part = replace(segment, start=a, stop=stop)
            yield from _cut(part, [self._collections(part, attempt)], _task(attempt))
            at = stop
        if at < segment.stop:
            yield replace(segment, start=at), None

    def _longest(
        self, worker: str | None, a: int, b: int, thread: int | None = None
    ) -> Occupant | None:
        start, stop, attempt = self._during(worker, thread, a, b)
        if not len(attempt):
            return None
        return _task(int(attempt[np.argmax(stop - start)]))

    def _during(
        self, worker: str | None, thread: int | None, a: int, b: int
    ) -> tuple[Ints, Ints, Ints]:
        if worker is None or worker not in self._by_worker:
            return _NOTHING
        if (worker, thread) not in self._executions:
            rows = self._by_worker[worker]
            if thread is not None:
                on_thread = rows["thread"] == thread
                rows = {name: column[on_thread] for name, column in rows.items()}
            self._executions[worker, thread] = _Executions.of(rows)
        return self._executions[worker, thread].during(a, b)

    @cached_property
    def _by_worker(self) -> dict[str, dict[str, Array]]:
        return self._data.busy_threads(self._workers) if self._workers else {}


def _named(occupant: Occupant | None, names: dict[int, dict[str, Any]]) -> Occupant | None:
    if occupant is None or occupant.attempt is None or occupant.attempt not in names:
        return occupant
    row = names[occupant.attempt]
    if occupant.kind == "gil":
        return Occupant("gil", prefix=row["prefix"], worker=row["worker"])
    return replace(
        occupant,
        name=row["key"],
        prefix=row["prefix"],
        worker=row["worker"],
        thread=row["thread"],
    )


def _task(attempt: int | None) -> Occupant:
    return Occupant("task", None, attempt)


def _is_frozen(block: Hold) -> bool:
    return block.frozen


def _collector(pause: Hold) -> Occupant:
    """Return the garbage collector, with the attempt whose thread ran it, if one did."""
    return Occupant("gc", None, pause.attempt, worker=pause.worker)


def _part(hold: Hold, occupant: Occupant) -> _Part:
    return hold.start, hold.stop, occupant


def _cut(
    segment: Segment, layers: Sequence[Sequence[_Part]], rest: Occupant
) -> Iterator[tuple[Segment, Occupant]]:
    """Divide a segment by layers, of which the first that covers a moment counts."""
    start, held = segment.start, None
    for a, _, occupant in _layered(segment.start, segment.stop, layers, rest):
        if held is not None and occupant != held:
            yield replace(segment, start=start, stop=a), held
            start = a
        held = occupant
    yield replace(segment, start=start), held or rest


def _layered(a: int, b: int, layers: Sequence[Sequence[_Part]], rest: Occupant) -> Iterator[_Part]:
    """Divide an interval by layers of disjoint parts, each in order."""
    if not layers:
        if b > a:
            yield a, b, rest
        return
    parts, at = layers[0], a
    for index in range(bisect_right(parts, a, key=_stop_of), len(parts)):
        start, stop, occupant = parts[index]
        start, stop = max(start, at), min(stop, b)
        if start >= b:
            break
        if stop > start:
            yield from _layered(at, start, layers[1:], rest)
            yield start, stop, occupant
            at = stop
    yield from _layered(at, b, layers[1:], rest)


def _stop_of(part: _Part) -> int:
    return part[1]
