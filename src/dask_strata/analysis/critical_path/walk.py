"""The critical path: the cause of each second from the first submission to the last result.

The walk goes backwards from the last result. The predecessor of an attempt is the event that it
waited for longest: the result of a dependency, an earlier attempt at the same task, or the
submission of its task. The predecessor of a submission is the last result before it. The
segments therefore tile the makespan, and each has one cause.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dask_strata.analysis.critical_path.data import Ints, PathData

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Causes of seconds of the makespan, and their meanings.
CAUSES = {
    "compute": "in a task's function",
    "transfer": "fetching a task's dependencies from other workers",
    "deserialize": "unpacking a task's definition",
    "I/O": "opening files in a task's function, if recorded",
    "spill": "writing results to disk or reading them back",
    "waiting for a worker": "waiting for a free worker thread",
    "scheduler": "scheduling and communication: decisions, messages and blocked event loops",
    "client": "the client had not sent the next graph while it had unfinished tasks, or the "
    "scheduler had not received it",
    "nothing submitted": "the scheduler had no unfinished task",
    "not on record": "unknown: no submission or dependency that explains the time is on record",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of the makespan with one cause.

    Attributes
    ----------
    start, stop : int
        Its times, in ns since the epoch on the scheduler's clock.
    cause : str
        Its cause, see `CAUSES`.
    attempt, key, key_type, prefix, worker
        The attempt that the rest of the run waited for; None if there was none.
    """

    start: int
    stop: int
    cause: str
    attempt: int | None = None
    key: str | None = None
    key_type: str | None = None
    prefix: str | None = None
    worker: str | None = None

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return (self.stop - self.start) / 1e9


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of a run.

    Attributes
    ----------
    segments : tuple of Segment
        Segments in time order, without gaps.
    seconds : dict
        Seconds by cause, without causes that did not occur.
    """

    segments: tuple[Segment, ...]
    seconds: dict[str, float]

    @property
    def makespan_seconds(self) -> float:
        """Seconds from the first submission to the last result."""
        if not self.segments:
            return 0.0
        return (self.segments[-1].stop - self.segments[0].start) / 1e9

    @property
    def tasks(self) -> int:
        """Number of tasks on the path."""
        return len({(s.key, s.key_type) for s in self.segments if s.key is not None})

    def share(self, cause: str) -> float:
        """Return a cause's share of the makespan, 0 to 1."""
        makespan = self.makespan_seconds
        return self.seconds.get(cause, 0.0) / makespan if makespan else 0.0


def critical_path(run: Run) -> CriticalPath:
    """Return the critical path of a run.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    CriticalPath
        Without segments if no task has a result.
    """
    data = PathData(run)
    pieces = list(_Walk(data).backwards())[::-1] if data.done.any() else []
    segments = tuple(_segments(data, pieces))
    seconds = dict.fromkeys(CAUSES, 0.0)
    for segment in segments:
        seconds[segment.cause] += segment.seconds
    return CriticalPath(segments, {cause: s for cause, s in seconds.items() if s})


#: Start, stop, cause, and index of the attempt or -1.
_Piece = tuple[int, int, str, int]


class _Walk:
    """One walk from the last result to the first submission."""

    def __init__(self, data: PathData) -> None:
        self._data = data
        self._first = int(min([*data.under_way[0][:1].tolist(), data.start.min()]))
        self._by_stop = np.argsort(data.stop, kind="stable")
        self._stops = data.stop[self._by_stop]
        # The walk goes backwards: attempts behind this index were visited or ended too late.
        self._last = len(self._stops) - 1
        self._visited: set[int] = set()
        self._workers = data.attempts["worker"].to_pylist()

    def backwards(self) -> Iterator[_Piece]:
        """Yield the pieces in reverse order; they tile the makespan."""
        data = self._data
        ended = np.flatnonzero(data.done)
        attempt = int(ended[np.argmax(data.stop[ended])])
        now = int(data.stop[attempt])
        while True:
            self._visited.add(attempt)
            begun = max(int(data.start[attempt]), self._first)
            yield from reversed(list(self._inside(attempt, min(begun, now), now)))
            now = min(begun, now)
            before, at = self._waited_for(attempt, now)
            yield from reversed(list(self._unassigned(attempt, at, now)))
            now = at
            if before is None:
                before, at = self._result_before(now)
                known = data.submitted[attempt] >= 0
                yield from reversed(list(self._unsubmitted(at, now, known=known)))
                now = at
            if before is None or now <= self._first:
                return
            attempt = before

    def _inside(self, attempt: int, begun: int, now: int) -> Iterator[_Piece]:
        """Divide the time of an attempt into its phases and the gaps between them."""
        groups, causes, starts, stops = self._data.phases
        rows = groups.rows(attempt).tolist()
        # Workers only estimate the scheduler's clock. No phase can end after the scheduler received
        # the report of the attempt's end: shift the phases back by the excess.
        late = max((int(stops[row]) for row in rows), default=now) - now
        ran, at = False, begun
        for row in rows:
            a, b = (min(max(int(t) - max(late, 0), at), now) for t in (starts[row], stops[row]))
            if b > a:
                yield from self._between(attempt, at, a, ran=ran)
                yield from self._phase(attempt, a, b, causes[row])
                at, ran = b, ran or causes[row] == "compute"
        yield from self._between(attempt, at, now, ran=ran)

    def _phase(self, attempt: int, a: int, b: int, cause: str) -> Iterator[_Piece]:
        opened = a
        if cause == "compute":
            opened = min(a + self._data.opening.get(attempt, 0), b)
            if opened > a:
                yield a, opened, "I/O", attempt
        if b > opened:
            yield opened, b, cause, attempt

    def _between(self, attempt: int, a: int, b: int, *, ran: bool) -> Iterator[_Piece]:
        """Divide a gap between phases: before the function ran, the cause may be busy threads."""
        none = np.empty(0, np.int64)
        busy = (none, none) if ran else self._data.full.get(self._workers[attempt], (none, none))
        yield from _divide(
            a, b, *busy, inside="waiting for a worker", outside="scheduler", at=attempt
        )

    def _unassigned(self, attempt: int, a: int, b: int) -> Iterator[_Piece]:
        groups, starts, stops = self._data.queued
        rows = groups.rows(int(self._data.task[attempt]))
        for piece in _divide(
            a, b, starts[rows], stops[rows],
            inside="waiting for a worker", outside="scheduler", at=attempt,
        ):  # fmt: skip
            if piece[2] == "scheduler":
                yield piece
            else:
                yield from _divide(
                    *piece[:2], *self._data.crowded,
                    inside="waiting for a worker", outside="scheduler", at=attempt,
                )  # fmt: skip

    def _waited_for(self, attempt: int, now: int) -> tuple[int | None, int]:
        """Return the predecessor of an attempt, None for its submission, and when it ended."""
        data = self._data
        groups, needs = data.dependencies
        task = int(data.task[attempt])
        submitted = int(data.submitted[attempt])
        best, at = None, submitted if 0 <= submitted <= now else -1
        for other in (task, *needs[groups.rows(task)].tolist()):
            for row in reversed(data.of_task.rows(other).tolist()):
                stop = int(data.stop[row])
                if stop <= now and row not in self._visited:
                    if stop > at:
                        best, at = row, stop
                    break
        if best is None and at < 0:
            at = now
        return best, max(at, min(self._first, now))

    def _result_before(self, now: int) -> tuple[int | None, int]:
        """Return the attempt with the last result before a submission, and the result's time."""
        if now <= self._first:
            return None, now
        index = min(self._last, int(np.searchsorted(self._stops, now, side="right")) - 1)
        while index >= 0 and int(self._by_stop[index]) in self._visited:
            index -= 1
        self._last = index
        if index < 0:
            return None, self._first
        return int(self._by_stop[index]), max(int(self._stops[index]), self._first)

    def _unsubmitted(self, a: int, b: int, *, known: bool) -> Iterator[_Piece]:
        """Divide the time before a submission into the client's and time without any task."""
        if b <= a:
            return
        if not known:
            yield a, b, "not on record", -1
            return
        sent = self._data.sent
        index = bisect_left(sent, b) - 1
        left = int(sent[index]) if index >= 0 and sent[index] > a else b
        starts, stops = self._data.under_way
        yield from _divide(
            a, left, starts, stops, inside="client", outside="nothing submitted", at=-1
        )
        if b > left:
            yield left, b, "client", -1


def _divide(  # noqa: PLR0913  an interval, the intervals that divide it, and two causes
    a: int, b: int, starts: Ints, stops: Ints, *, inside: str, outside: str, at: int
) -> Iterator[_Piece]:
    """Divide an interval into its parts inside and outside of disjoint intervals, in order."""
    if b <= a:
        return
    if not len(starts):
        yield a, b, outside, at
        return
    low = int(np.searchsorted(stops, a, side="right"))
    high = int(np.searchsorted(starts, b, side="left"))
    now = a
    for start, stop in zip(starts[low:high].tolist(), stops[low:high].tolist(), strict=True):
        start, stop = max(start, now), min(stop, b)  # noqa: PLW2901  clipped to the interval
        if stop <= start:
            continue
        if start > now:
            yield now, start, outside, at
        yield start, stop, inside, at
        now = stop
    if b > now:
        yield now, b, outside, at


def _segments(data: PathData, pieces: list[_Piece]) -> Iterator[Segment]:
    """Yield segments with the names of their tasks; join neighbours of the same cause and task."""
    joined: list[_Piece] = []
    for piece in pieces:
        a, b, cause, attempt = piece
        if joined and joined[-1][1:] == (a, cause, attempt):
            joined[-1] = (joined[-1][0], b, cause, attempt)
        else:
            joined.append(piece)
    indices = sorted({attempt for *_, attempt in joined if attempt >= 0})
    names = ["attempt", "key", "key_type", "prefix", "worker"]
    rows = data.attempts.select(names).take(pa.array(indices, pa.int64())).to_pylist()
    named = dict(zip(indices, rows, strict=True))
    for a, b, cause, attempt in joined:
        yield Segment(a, b, cause, **named.get(attempt, {}))
