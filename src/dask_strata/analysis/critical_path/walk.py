"""The critical path: the cause of each second from the client's first graph to the last result.

It begins where the client builds the first graph, and ends when the client has fetched the last
result, if it waited for that.

If tasks are executing at the end of the record, as in a run that is being recorded, the path ends
with one of them. The walk goes backwards from this end. The predecessor of an attempt is the event
that it waited for longest: the result of a dependency, an earlier attempt at the same task, or the
submission of its task; a result that was lost and is needed again is as a new submission. The
predecessor of a submission is the last result before it. The segments therefore tile the makespan,
and each has one cause.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.critical_path.client_times import ClientTimes
from dask_strata.analysis.critical_path.data import NONE, PathData
from dask_strata.analysis.critical_path.occupants import Occupant, Occupants
from dask_strata.analysis.series.columns import Ints

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Causes of seconds of the makespan, and their meanings.
CAUSES = {
    "compute": "in a task's function",
    "transfer": "fetching dependencies from other workers: the task's, or those of tasks that took "
    "the last places on workers while it was queued",
    "waiting to fetch": "waiting for one's turn to fetch: dependencies were on other workers, and "
    "none was on its way; Dask limits the transfers into and out of a worker",
    "deserialize": "unpacking a task's definition, and collecting its dependencies in its worker",
    "I/O": "opening files in a task's function, if recorded",
    "spill": "writing results to disk or reading them back, in Dask's memory management",
    "waiting for a worker": "waiting for a free worker thread",
    "other clients": "waiting for a worker thread, while tasks of other clients had them",
    "waiting for a resource": "waiting for a resource that other tasks used, or for a worker that "
    "meets the task's restrictions",
    "paused worker": "on a worker that Dask had paused because of its memory, or while all workers "
    "were paused or busy",
    "blocked event loop": "the event loop of the worker or of the scheduler was blocked, so that "
    "tasks were neither assigned nor started nor reported",
    "silent worker": "on a worker that sent no heartbeats, from its last sign of life until the "
    "scheduler removed it (distributed.scheduler.worker-ttl)",
    "scheduler": "scheduling and communication: decisions, messages",
    "graph": "the client built and sent a graph, or the scheduler unpacked it: from the call that "
    "submits until the scheduler has its tasks",
    "scatter": "the client sent data to workers with `Client.scatter`",
    "gather": "the client fetched results",
    "client": "the client had not sent the next graph while it had unfinished tasks, or the "
    "scheduler had not received it",
    "nothing submitted": "the scheduler had no unfinished task",
    "not on record": "unknown: no submission, dependency or transition of the scheduler that "
    "explains the time is on record",
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
    thread : int or None
        The thread on which this attempt ran.
    file, line, code
        The line of the user's script that submitted its task.
    occupant : Occupant or None
        Who held what was waited for, see `occupants`.
    """

    start: int
    stop: int
    cause: str
    attempt: int | None = None
    key: str | None = None
    key_type: str | None = None
    prefix: str | None = None
    worker: str | None = None
    thread: int | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    occupant: Occupant | None = None

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
        """Seconds from the first submission to the end of the path."""
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
        Without segments if no task has a result or is executing.
    """
    data = PathData(run)
    pieces = list(_Walk(data, ClientTimes(run)).backwards())[::-1] if data.done.any() else []
    segments = tuple(Occupants(data).of(_segments(data, pieces)))
    seconds = dict.fromkeys(CAUSES, 0.0)
    for segment in segments:
        seconds[segment.cause] += segment.seconds
    return CriticalPath(segments, {cause: s for cause, s in seconds.items() if s})


#: Start, stop, cause, and index of the attempt or -1.
_Piece = tuple[int, int, str, int]

#: A cause, and the starts and stops of the disjoint intervals in which it applies.
_Cause = tuple[str, Ints, Ints]


@dataclass(frozen=True, slots=True)
class _Step:
    """An attempt on the path: when it began, and when the event happened that it waited for.

    `result_at` is the time of the last result before its submission, None if it waited for another
    attempt.
    """

    attempt: int
    stop: int
    begun: int
    waited_from: int
    result_at: int | None


class _Walk:
    """One walk from the last result to the first submission.

    The steps need only the times and dependencies of attempts. They are divided into causes
    afterwards, so that phases and waits are read for the attempts on the path alone.
    """

    def __init__(self, data: PathData, clients: ClientTimes) -> None:
        self._data, self._clients = data, clients
        first = int(min([*data.under_way[0][:1].tolist(), data.start.min()]))
        # The makespan begins with the call that submitted the first graph, of any client.
        calls = clients.of(None)
        self._first = calls.scattered_before(int(min([first, *calls.graph[0][:1].tolist()])))
        self._by_stop = np.argsort(data.stop, kind="stable").astype(np.int32)
        # The walk goes backwards: attempts behind this index were visited or ended too late.
        self._last = len(self._by_stop) - 1
        self._visited = np.zeros(len(data), np.bool_)
        # Attempts that took no time, after their submission or a result at the same moment.
        self._instant = (data.start == data.stop) & (data.submitted == data.stop)

    def backwards(self) -> Iterator[_Piece]:
        """Yield the pieces in reverse order; they tile the makespan."""
        steps = list(self._steps())
        last = steps[0].stop
        client = self._clients.of(self._data.client(steps[0].attempt))
        if (gathered := client.gathered_after(last)) > last:
            yield last, gathered, "gather", -1
        self._data.read(sorted({step.attempt for step in steps if step.stop > self._since(step)}))
        for step in steps:
            yield from reversed(list(self._inside(step.attempt, step.begun, step.stop)))
            now = step.waited_from
            yield from reversed(list(self._unassigned(step.attempt, now, step.begun)))
            if step.result_at is not None:
                yield from reversed(list(self._unsubmitted(step.attempt, step.result_at, now)))

    @staticmethod
    def _since(step: _Step) -> int:
        return step.waited_from if step.result_at is None else step.result_at

    def _steps(self) -> Iterator[_Step]:
        data = self._data
        ended = np.flatnonzero(data.done)
        attempt = int(ended[np.argmax(data.stop[ended])])
        now = int(data.stop[attempt])
        while True:
            self._visited[attempt] = True
            begun = min(max(int(data.start[attempt]), self._first), now)
            before, at = self._waited_for(attempt, begun)
            result_at = None
            if before is None:
                before, result_at = self._result_before(at)
            step = _Step(attempt, now, begun, at, result_at)
            yield step
            now = self._since(step)
            if before is None or now <= self._first:
                return
            attempt = before

    def _inside(self, attempt: int, begun: int, now: int) -> Iterator[_Piece]:
        """Divide the time of an attempt into its phases and the gaps between them."""
        if now <= begun:
            return
        phases = self._data.phases(attempt)
        # Workers only estimate the scheduler's clock. No phase can end after the scheduler received
        # the report of the attempt's end: shift the phases back by the excess.
        late = max((stop for *_, stop in phases), default=now) - now
        if not self._data.reported[attempt]:
            late = 0  # a function that goes on after its attempt was cancelled or lost
        ran, at = False, begun
        for cause, start, stop in phases:
            a, b = (min(max(t - max(late, 0), at), now) for t in (start, stop))
            if b > a:
                yield from self._between(attempt, at, a, ran=ran)
                yield from self._phase(attempt, a, b, cause)
                at, ran = b, ran or cause == "compute"
        yield from self._between(attempt, at, now, ran=ran)

    def _phase(self, attempt: int, a: int, b: int, cause: str) -> Iterator[_Piece]:
        if cause == "disk":
            # Dask calls each slow look at a worker's results so, also if they are in memory.
            spill = self._condition(attempt, "spill")
            yield from _by_cause(a, b, attempt, [spill], rest="deserialize")
            return
        opened = a
        if cause == "compute":
            opened = min(a + self._data.opening.get(attempt, 0), b)
            if opened > a:
                yield a, opened, "I/O", attempt
        if b > opened:
            yield opened, b, cause, attempt

    def _condition(self, attempt: int, name: str) -> _Cause:
        return name, *self._data.condition(self._data.worker(attempt), name)

    @property
    def _stalled(self) -> _Cause:
        return "blocked event loop", *self._data.scheduler_blocks

    def _between(self, attempt: int, a: int, b: int, *, ran: bool) -> Iterator[_Piece]:
        """Divide a gap between phases by the causes for which the task or its worker waited."""
        if b <= a:
            return
        spill, paused, blocked, silent = (
            self._condition(attempt, name)
            for name in ("spill", "paused worker", "blocked event loop", "silent worker")
        )
        if ran:
            causes = [spill, blocked, silent, self._stalled]
            yield from _by_cause(a, b, attempt, causes, rest="scheduler")
            return
        transfer, turn, resource = (
            (cause, *self._data.waits(attempt, cause))
            for cause in ("transfer", "waiting to fetch", "waiting for a resource")
        )
        worker = self._data.worker(attempt) or ""
        busy = ("waiting for a worker", *self._data.full.get(worker, NONE))
        others = ("other clients", *self._data.full_with_others.get(worker, NONE))
        for piece in _by_cause(a, b, attempt, [transfer, turn], rest="scheduler"):
            causes = {
                "waiting to fetch": [spill, paused, silent],
                "scheduler": [
                    busy,
                    others,
                    spill,
                    paused,
                    resource,
                    blocked,
                    silent,
                    self._stalled,
                ],
            }.get(piece[2], [])
            yield from _by_cause(*piece[:2], attempt, causes, rest=piece[2])

    def _unassigned(self, attempt: int, a: int, b: int) -> Iterator[_Piece]:
        if b <= a:
            return
        starts, stops, unplaceable = self._data.queued(attempt)
        for piece in _by_cause(a, b, attempt, [("queued", starts, stops)], rest=""):
            causes = []
            if piece[2] == "queued":
                resource = ("waiting for a resource", starts[unplaceable], stops[unplaceable])
                busy, others, paused, *rest = self._data.without_place
                causes = [busy, others, paused, resource, *rest]
            chosen = [*causes, self._stalled]
            yield from _by_cause(*piece[:2], attempt, chosen, rest="scheduler")

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
                if stop <= now and not self._visited[row]:
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
        stop, by_stop = self._data.stop, self._by_stop
        ended = bisect_right(range(len(by_stop)), now, key=lambda i: stop[by_stop[i]])
        index = min(self._last, ended - 1)
        while index >= 0 and self._visited[by_stop[index]]:
            index -= 1
        self._last = index
        if index < 0:
            return None, self._first
        at = int(stop[by_stop[index]])
        return self._last_instant(index, at), max(at, self._first)

    def _last_instant(self, index: int, at: int) -> int:
        """Return the last of a series of attempts that the walk would visit at the same moment."""
        stop, by_stop = self._data.stop, self._by_stop
        first = bisect_left(range(index + 1), at, key=lambda i: stop[by_stop[i]])
        rows = by_stop[first : index + 1]
        others = np.flatnonzero(~self._instant[rows])
        rows = rows[others[-1] + 1 :] if len(others) else rows
        rows = rows[~self._visited[rows]]
        if not len(rows):
            return int(by_stop[index])
        self._visited[rows] = True
        return int(rows[0])

    def _unsubmitted(self, attempt: int, a: int, b: int) -> Iterator[_Piece]:
        """Divide the time before a submission into the client's and time without any task."""
        if b <= a:
            return
        if self._data.submitted[attempt] < 0:
            yield a, b, "not on record", -1
            return
        if self._data.renewed[attempt]:
            # Workers lose results without the client, while other tasks may be in progress.
            yield from _divide(
                a,
                b,
                *self._data.under_way,
                inside="scheduler",
                outside="nothing submitted",
                at=attempt,
            )
            return
        # Of the client whose task it is: others may share the scheduler.
        client = self._clients.of(self._data.client(attempt))
        index = bisect_left(client.sent, b) - 1
        left = int(client.sent[index]) if index >= 0 and client.sent[index] > a else b
        causes = [
            ("graph", *client.graph),
            ("scatter", *client.scatter),
            ("gather", *client.gather),
        ]
        for piece in _by_cause(a, left, -1, causes, rest=""):
            if piece[2]:
                yield piece
                continue
            starts, stops = self._data.under_way
            yield from _divide(
                *piece[:2], starts, stops, inside="client", outside="nothing submitted", at=-1
            )
        # Without the time of the call, it is not known what of this is the graph's.
        rest = "graph" if len(client.graph[0]) else "client"
        yield from _by_cause(left, b, -1, [] if rest == "graph" else [self._stalled], rest=rest)


def _by_cause(a: int, b: int, at: int, causes: Sequence[_Cause], *, rest: str) -> Iterator[_Piece]:
    """Divide an interval by causes, of which the first that applies counts."""
    if not causes:
        if b > a:
            yield a, b, rest, at
        return
    (cause, starts, stops), *others = causes
    for piece in _divide(a, b, starts, stops, inside=cause, outside="", at=at):
        if piece[2]:
            yield piece
        else:
            yield from _by_cause(*piece[:2], at, others, rest=rest)


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
        if cause == "scheduler" and not data.scheduled[attempt]:
            cause = "not on record"
        if joined and joined[-1][1:] == (a, cause, attempt):
            joined[-1] = (joined[-1][0], b, cause, attempt)
        else:
            joined.append((a, b, cause, attempt))
    for a, b, cause, attempt in joined:
        yield Segment(a, b, cause, **(data.names[attempt] if attempt >= 0 else {}))
