"""Who held what a segment of the critical path waited for.

A task that waits for a worker gets the thread of an earlier task: the executions on the thread on
which it ran later are the occupants, one after the other. While a worker's event loop is blocked,
the occupant is the task that ran longest on the worker meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.data import PathData
    from dask_strata.analysis.critical_path.walk import Segment
    from dask_strata.analysis.series.columns import Array, Ints

#: Causes in which the rest of the run waited for the client.
CLIENT_CAUSES = frozenset({"graph", "scatter", "gather", "client", "nothing submitted"})

#: Causes in which a task waited for the thread of another one.
THREAD_CAUSES = frozenset({"waiting for a worker"})

#: Causes in which the task itself runs.
_OWN = frozenset({"compute", "I/O"})


_NO_TIMES = np.empty(0, np.int64)
_NOTHING: tuple[Ints, Ints, Ints] = (_NO_TIMES, _NO_TIMES, _NO_TIMES)


@dataclass(frozen=True, slots=True)
class Occupant:
    """Who held the resource that a segment waited for.

    Attributes
    ----------
    kind : str
        task, worker, scheduler or client.
    name : str or None
        Key of the task, or address of the worker; None for scheduler and client.
    attempt : int or None
        Number of the attempt at the task.
    prefix, worker
        Of the task.
    thread : int or None
        Thread on which the task ran.
    """

    kind: str
    name: str | None = None
    attempt: int | None = None
    prefix: str | None = None
    worker: str | None = None
    thread: int | None = None


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
        waiting = [s for s in found if s.cause in THREAD_CAUSES or s.cause == "blocked event loop"]
        self._workers = sorted({s.worker for s in waiting if s.worker is not None})
        divided = [piece for segment in found for piece in self._divide(segment)]
        numbers = {o.attempt for _, o in divided if o is not None and o.attempt is not None}
        names = self._data.names_of(sorted(numbers)) if numbers else {}
        return [replace(s, occupant=_named(occupant, names)) for s, occupant in divided]

    def _divide(self, segment: Segment) -> Iterator[tuple[Segment, Occupant | None]]:
        if segment.cause in CLIENT_CAUSES:
            yield segment, Occupant("client")
        elif segment.cause in _OWN:
            yield segment, Occupant("task", segment.key, segment.attempt)
        elif segment.cause in THREAD_CAUSES:
            yield from self._by_thread(segment)
        elif segment.cause == "blocked event loop":
            yield segment, self._longest(segment) or Occupant("worker", segment.worker)
        elif segment.cause == "scheduler":
            yield segment, Occupant("scheduler")
        elif segment.cause == "not on record":
            yield segment, None
        else:
            yield segment, Occupant("worker", segment.worker)

    def _by_thread(self, segment: Segment) -> Iterator[tuple[Segment, Occupant | None]]:
        at = segment.start
        columns = self._during(segment, segment.thread)
        for start, stop, attempt in zip(*(each.tolist() for each in columns), strict=True):
            a = max(start, at)
            if stop <= a:
                continue
            if a > at:
                yield replace(segment, start=at, stop=a), None
            yield replace(segment, start=a, stop=stop), Occupant("task", None, attempt)
            at = stop
        if at < segment.stop:
            yield replace(segment, start=at), None

    def _longest(self, segment: Segment) -> Occupant | None:
        start, stop, attempt = self._during(segment, None)
        if not len(attempt):
            return None
        return Occupant("task", None, int(attempt[np.argmax(stop - start)]))

    def _during(self, segment: Segment, thread: int | None) -> tuple[Ints, Ints, Ints]:
        worker = segment.worker
        if worker is None or worker not in self._by_worker:
            return _NOTHING
        if (worker, thread) not in self._executions:
            rows = self._by_worker[worker]
            if thread is not None:
                on_thread = rows["thread"] == thread
                rows = {name: column[on_thread] for name, column in rows.items()}
            self._executions[worker, thread] = _Executions.of(rows)
        return self._executions[worker, thread].during(segment.start, segment.stop)

    @cached_property
    def _by_worker(self) -> dict[str, dict[str, Array]]:
        return self._data.busy_threads(self._workers) if self._workers else {}


def _named(occupant: Occupant | None, names: dict[int, dict[str, Any]]) -> Occupant | None:
    if occupant is None or occupant.attempt is None or occupant.attempt not in names:
        return occupant
    row = names[occupant.attempt]
    return replace(
        occupant,
        name=row["key"],
        prefix=row["prefix"],
        worker=row["worker"],
        thread=row["thread"],
    )
