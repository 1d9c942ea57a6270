"""The critical path: what each second from the first submission to the last result went into.

The path is walked backwards from the last result. An attempt is preceded by what it had to
wait for longest: the result of a dependency, an earlier attempt at the same task, or the
submission of its task; and a submission by the last result before it. So the segments tile
the makespan, and each has one cause.
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

#: What a second of the makespan can have gone into.
CAUSES = {
    "compute": "in a task's function",
    "transfer": "fetching what a task needs from other workers",
    "deserialize": "unpacking a task's definition",
    "I/O": "opening files in a task's function, where that is known",
    "spill": "writing results to disk or reading them back",
    "waiting for a worker": "queued while no worker was there or all threads of all were busy, or "
    "assigned to a worker all of whose threads were busy",
    "scheduler": "between results, assignments and reports: decisions, messages, and event loops "
    "that were blocked, of workers too (imports)",
    "client": "the client had not sent the next graph although it had tasks under way, "
    "or it had sent it but the scheduler had not got it yet",
    "nothing submitted": "no unfinished task was on the scheduler",
    "not on record": "no submission and no dependency is on record that was waited for",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of the makespan, from when to when in ns, and what it went into.

    Task and worker are those that were waited for; null where it was none.
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
        """How long it is."""
        return (self.stop - self.start) / 1e9


@dataclass(frozen=True)
class CriticalPath:
    """The makespan in segments that follow each other without a gap."""

    segments: tuple[Segment, ...]
    seconds: dict[str, float]

    @property
    def makespan_seconds(self) -> float:
        """From the first submission to the last result."""
        if not self.segments:
            return 0.0
        return (self.segments[-1].stop - self.segments[0].start) / 1e9

    @property
    def tasks(self) -> int:
        """How many tasks the path goes through."""
        return len({(s.key, s.key_type) for s in self.segments if s.key is not None})

    def share(self, cause: str) -> float:
        """Return the part of the makespan that a cause has, 0 to 1."""
        makespan = self.makespan_seconds
        return self.seconds.get(cause, 0.0) / makespan if makespan else 0.0


def critical_path(run: Run) -> CriticalPath:
    """Return what each second of a run's makespan went into."""
    data = PathData(run)
    pieces = list(_Walk(data).backwards())[::-1] if data.done.any() else []
    segments = tuple(_segments(data, pieces))
    seconds = dict.fromkeys(CAUSES, 0.0)
    for segment in segments:
        seconds[segment.cause] += segment.seconds
    return CriticalPath(segments, {cause: s for cause, s in seconds.items() if s})


#: From, to, cause, place of the attempt or -1.
_Piece = tuple[int, int, str, int]


class _Walk:
    """One walk from the last result to the first submission."""

    def __init__(self, data: PathData) -> None:
        self._data = data
        self._first = int(min([*data.under_way[0][:1].tolist(), data.start.min()]))
        self._by_stop = np.argsort(data.stop, kind="stable")
        self._stops = data.stop[self._by_stop]
        # What ended behind it was been to, or ended too late: the walk goes backwards.
        self._place = len(self._stops) - 1
        self._been: set[int] = set()
        self._workers = data.attempts["worker"].to_pylist()

    def backwards(self) -> Iterator[_Piece]:
        """Yield the pieces, the last first; they tile the makespan."""
        data = self._data
        ended = np.flatnonzero(data.done)
        here = int(ended[np.argmax(data.stop[ended])])
        now = int(data.stop[here])
        while True:
            self._been.add(here)
            begun = max(int(data.start[here]), self._first)
            yield from reversed(list(self._inside(here, min(begun, now), now)))
            now = min(begun, now)
            before, at = self._waited_for(here, now)
            yield from reversed(list(self._unassigned(here, at, now)))
            now = at
            if before is None:
                before, at = self._result_before(now)
                known = data.submitted[here] >= 0
                yield from reversed(list(self._unsubmitted(at, now, known=known)))
                now = at
            if before is None or now <= self._first:
                return
            here = before

    def _inside(self, here: int, begun: int, now: int) -> Iterator[_Piece]:
        """Divide a stay on a worker by its phases, and what is between them."""
        groups, causes, starts, stops = self._data.phases
        rows = groups.rows(here).tolist()
        # Workers only estimate the scheduler's clock: no phase ended after its report came in.
        late = max((int(stops[row]) for row in rows), default=now) - now
        ran, at = False, begun
        for row in rows:
            a, b = (min(max(int(t) - max(late, 0), at), now) for t in (starts[row], stops[row]))
            if b > a:
                yield from self._between(here, at, a, ran=ran)
                yield from self._phase(here, a, b, causes[row])
                at, ran = b, ran or causes[row] == "compute"
        yield from self._between(here, at, now, ran=ran)

    def _phase(self, here: int, a: int, b: int, cause: str) -> Iterator[_Piece]:
        opened = a
        if cause == "compute":
            opened = min(a + self._data.opening.get(here, 0), b)
            if opened > a:
                yield a, opened, "I/O", here
        if b > opened:
            yield opened, b, cause, here

    def _between(self, here: int, a: int, b: int, *, ran: bool) -> Iterator[_Piece]:
        """Divide what is between phases: before it ran, it may have waited for a thread."""
        none = np.empty(0, np.int64)
        busy = (none, none) if ran else self._data.full.get(self._workers[here], (none, none))
        yield from _divide(a, b, *busy, inside="waiting for a worker", outside="scheduler", at=here)

    def _unassigned(self, here: int, a: int, b: int) -> Iterator[_Piece]:
        groups, starts, stops = self._data.queued
        rows = groups.rows(int(self._data.task[here]))
        for piece in _divide(
            a, b, starts[rows], stops[rows],
            inside="waiting for a worker", outside="scheduler", at=here,
        ):  # fmt: skip
            if piece[2] == "scheduler":
                yield piece
            else:
                yield from _divide(
                    *piece[:2], *self._data.crowded,
                    inside="waiting for a worker", outside="scheduler", at=here,
                )  # fmt: skip

    def _waited_for(self, here: int, now: int) -> tuple[int | None, int]:
        """Return what an attempt came after, and when: null if that was its submission."""
        data = self._data
        groups, needs = data.dependencies
        task = int(data.task[here])
        submitted = int(data.submitted[here])
        best, at = None, submitted if 0 <= submitted <= now else -1
        for other in (task, *needs[groups.rows(task)].tolist()):
            for row in reversed(data.of_task.rows(other).tolist()):
                stop = int(data.stop[row])
                if stop <= now and row not in self._been:
                    if stop > at:
                        best, at = row, stop
                    break
        if best is None and at < 0:
            at = now
        return best, max(at, min(self._first, now))

    def _result_before(self, now: int) -> tuple[int | None, int]:
        """Return the last result before a submission, and when it was there."""
        if now <= self._first:
            return None, now
        place = min(self._place, int(np.searchsorted(self._stops, now, side="right")) - 1)
        while place >= 0 and int(self._by_stop[place]) in self._been:
            place -= 1
        self._place = place
        if place < 0:
            return None, self._first
        return int(self._by_stop[place]), max(int(self._stops[place]), self._first)

    def _unsubmitted(self, a: int, b: int, *, known: bool) -> Iterator[_Piece]:
        """Divide what is before a submission: the client's time, and nobody's."""
        if b <= a:
            return
        if not known:
            yield a, b, "not on record", -1
            return
        sent = self._data.sent
        place = bisect_left(sent, b) - 1
        left = int(sent[place]) if place >= 0 and sent[place] > a else b
        starts, stops = self._data.under_way
        yield from _divide(
            a, left, starts, stops, inside="client", outside="nothing submitted", at=-1
        )
        if b > left:
            yield left, b, "client", -1


def _divide(  # noqa: PLR0913  what to divide, by what, into what
    a: int, b: int, starts: Ints, stops: Ints, *, inside: str, outside: str, at: int
) -> Iterator[_Piece]:
    """Divide an interval into what is inside of others, in order and apart, and outside."""
    if b <= a:
        return
    if not len(starts):
        yield a, b, outside, at
        return
    low = int(np.searchsorted(stops, a, side="right"))
    high = int(np.searchsorted(starts, b, side="left"))
    now = a
    for start, stop in zip(starts[low:high].tolist(), stops[low:high].tolist(), strict=True):
        start, stop = max(start, now), min(stop, b)  # noqa: PLW2901  only what is of this interval
        if stop <= start:
            continue
        if start > now:
            yield now, start, outside, at
        yield start, stop, inside, at
        now = stop
    if b > now:
        yield now, b, outside, at


def _segments(data: PathData, pieces: list[_Piece]) -> Iterator[Segment]:
    """Name the pieces' tasks; what has the same cause and task becomes one."""
    joined: list[_Piece] = []
    for piece in pieces:
        a, b, cause, here = piece
        if joined and joined[-1][1:] == (a, cause, here):
            joined[-1] = (joined[-1][0], b, cause, here)
        else:
            joined.append(piece)
    places = sorted({here for *_, here in joined if here >= 0})
    names = ["attempt", "key", "key_type", "prefix", "worker"]
    rows = data.attempts.select(names).take(pa.array(places, pa.int64())).to_pylist()
    named = dict(zip(places, rows, strict=True))
    for a, b, cause, here in joined:
        yield Segment(a, b, cause, **named.get(here, {}))
