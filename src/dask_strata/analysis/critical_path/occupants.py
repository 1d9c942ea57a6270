"""Who held what a segment of the critical path waited for.

A task that waits for a worker gets the thread of an earlier task: the executions on the thread on
which it ran later are the occupants, one after the other. While a worker's event loop is blocked,
the occupant is the task that ran longest on the worker meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.data import PathData
    from dask_strata.analysis.critical_path.walk import Segment

#: Causes in which the rest of the run waited for the client.
CLIENT_CAUSES = frozenset({"graph", "scatter", "gather", "client", "nothing submitted"})

#: Causes in which a task waited for the thread of another one.
THREAD_CAUSES = frozenset({"waiting for a worker"})

#: Causes in which the task itself runs.
_OWN = frozenset({"compute", "I/O"})


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


class _Execution(NamedTuple):
    start: int
    stop: int
    attempt: int


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
        for start, stop, attempt in self._during(segment, segment.thread):
            a, b = max(start, at), min(stop, segment.stop)
            if b <= a:
                continue
            if a > at:
                yield replace(segment, start=at, stop=a), None
            yield replace(segment, start=a, stop=b), Occupant("task", None, attempt)
            at = b
        if at < segment.stop:
            yield replace(segment, start=at), None

    def _longest(self, segment: Segment) -> Occupant | None:
        best, longest = None, 0
        for start, stop, attempt in self._during(segment, None):
            held = min(stop, segment.stop) - max(start, segment.start)
            if held > longest:
                best, longest = attempt, held
        return None if best is None else Occupant("task", None, best)

    def _during(self, segment: Segment, thread: int | None) -> list[_Execution]:
        executions, longest = self._executions.get((segment.worker, thread), ([], 0))
        first = bisect_right(executions, segment.start - longest, key=lambda e: e.start)
        last = bisect_right(executions, segment.stop, key=lambda e: e.start)
        return [e for e in executions[max(first - 1, 0) : last] if e.stop > segment.start]

    @cached_property
    def _executions(self) -> dict[tuple[str | None, int | None], tuple[list[_Execution], int]]:
        """Executions by worker and thread, and by worker alone, and the longest of each."""
        found: dict[tuple[str | None, int | None], list[_Execution]] = {}
        if self._workers:
            table = self._data.busy_threads(self._workers)
            columns: list[list[Any]] = [
                table[name].to_pylist() for name in ("worker", "thread", "start", "stop", "attempt")
            ]
            for worker, thread, start, stop, attempt in zip(*columns, strict=True):
                execution = _Execution(start, stop, attempt)
                found.setdefault((worker, None), []).append(execution)
                if thread is not None:
                    found.setdefault((worker, thread), []).append(execution)
        return {
            place: (executions, max(e.stop - e.start for e in executions))
            for place, executions in found.items()
        }


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
