"""Who held the GIL of a worker: collections of the garbage collector, and blocks of its event loop.

A collection runs on one thread of a process, and the others wait for the GIL. In a *frozen* block
of an event loop no thread but one could run Python. The samples of the threads that ran tasks show
which of them used the CPU meanwhile, and which waited.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dask_strata.run import Run

#: CPU seconds of a process per second of a block from which it ran, and the same of its tasks, in
#: which these ran or were ready to.
_RAN = 0.1
_HELD = 0.25

#: Share of this time of all tasks from which one of them held the GIL alone.
_ALONE = 0.75

#: Shortest hold whose samples are read: there is one every 80 ms.
_LEAST_SECONDS = 0.1

#: Share of a block or collection in which samples of a thread wait for the GIL, if it was stopped.
_WAITED = 0.5

#: Contention by gilknocker from which a thread held the GIL, also one without CPU.
_CONTENDED = 0.5

_PAUSES = """
    select worker, start_ns, stop_ns, thread, attempt from _gc_pauses
    order by worker, start_ns, stop_ns
"""

#: A share of a row of `gil_contention` counts for the part of a block within it.
_BLOCKS = """
    with blocks as (
        select row_number() over () as number, * from _loop_blocks where stop_ns > start_ns
    ), contended as (
        select b.number,
               sum(g.contention * (least(b.stop_ns, epoch_ns(g.stop))
                                   - greatest(b.start_ns, epoch_ns(g.start)))) as ns
        from blocks b join gil_contention g
          on g.process = b.process and epoch_ns(g.start) < b.stop_ns
         and epoch_ns(g.stop) > b.start_ns
        group by b.number
    )
    select b.worker, b.start_ns, b.stop_ns, b.frozen_seconds, b.cpu_seconds,
           c.ns / 1e9 as contended_seconds
    from blocks b left join contended c using (number)
    order by b.worker, b.start_ns, b.stop_ns
"""

#: How long attempts ran or were ready to, and waited for the GIL, in some intervals. A
#: row of samples is about the time until its last sample; one of a frozen time has only that one.
#: Rows whose samples are further apart may be of other moments: they count for what others leave.
_SAMPLED = """
    with chosen as (
        select unnest(range(len($1))) as number, unnest($1::varchar[]) as worker,
               unnest($2::bigint[]) as a, unnest($3::bigint[]) as b
    ), samples as (
        select t.attempt, s.worker, s.waiting, s.seconds, epoch_ns(s.last) as b,
               s.cpu_seconds + coalesce(s.delay_seconds, 0) as ran_seconds,
               epoch_ns(s.last) - greatest((s.seconds * 1e9)::bigint,
                                           epoch_ns(s.last) - epoch_ns(s.first)) as a
        from task_samples s
        join attempts t on t._key = s._key and t.worker = s.worker and t.run_id = s.run_id
        where s.worker in (select worker from chosen) and s.seconds > 0
    ), within as (
        select c.number, s.attempt, s.waiting, s.seconds, s.ran_seconds,
               (least(s.b, c.b) - greatest(s.a, c.a)) / (s.b - s.a) as share,
               s.b - s.a > s.seconds * 1e9 + 1e6 as apart, (c.b - c.a) / 1e9 as hold_seconds
        from chosen c join samples s on s.worker = c.worker and s.a < c.b and s.b > c.a
        where s.b > s.a
    ), counted as (
        select number, attempt, waiting, seconds * share as seconds, ran_seconds * share as ran,
               case when apart then least(1, greatest(0, hold_seconds
                   - coalesce(sum(seconds * share) filter (not apart) over each, 0))
                   / sum(seconds * share) filter (apart) over each) else 1 end as weight
        from within window each as (partition by number, attempt)
    )
    select number, attempt, sum(ran * weight) as ran_seconds,
           coalesce(sum(seconds * weight) filter (waiting = 'gil'), 0) as gil_seconds
    from counted group by all order by all
"""


class Hold(NamedTuple):
    """A collection of the garbage collector, or a block of an event loop.

    Attributes
    ----------
    worker : str or None
        The worker; None for the scheduler.
    start, stop : int
        Its times in ns.
    collection : bool
        Whether it is a collection.
    thread, attempt : int or None
        The thread that ran a collection, and its attempt.
    frozen_seconds, cpu_seconds : float or None
        Of a block, see `loop_blocks`.
    contended_seconds : float or None
        Waits of gilknocker's thread in a block; None if it is not installed.
    """

    worker: str | None
    start: int
    stop: int
    collection: bool
    thread: int | None = None
    attempt: int | None = None
    frozen_seconds: float | None = None
    cpu_seconds: float | None = None
    contended_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return (self.stop - self.start) / 1e9

    @property
    def frozen(self) -> bool:
        """Whether most of it is a time in which the recorder's thread could not run either."""
        return self.collection or (self.frozen_seconds or 0.0) >= self.seconds / 2

    @property
    def is_contended(self) -> bool:
        """Whether gilknocker's thread waited for the GIL during most of it."""
        return (self.contended_seconds or 0.0) >= _CONTENDED * self.seconds

    @property
    def is_held(self) -> bool:
        """Whether a thread of the process held the GIL: it had CPU, or gilknocker waited."""
        ran = (self.cpu_seconds or 0.0) >= _RAN * self.seconds
        return self.collection or ran or self.is_contended


class Holder(Enum):
    """Who held the GIL: one task, one of several tasks, another thread of the process, unknown."""

    TASK = auto()
    SEVERAL = auto()
    NO_TASK = auto()
    UNKNOWN = auto()


class Sampled(NamedTuple):
    """How long an attempt ran or was ready to run in a hold, and waited for the GIL.

    The former is None if it is unknown.
    """

    ran_seconds: float | None
    gil_seconds: float


class Interruptions:
    """Collections and blocks of a run, by worker.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sampled: dict[Hold, dict[int, Sampled]] = {}

    @cached_property
    def _pauses(self) -> dict[str | None, list[Hold]]:
        return _by_worker(
            Hold(
                row["worker"],
                row["start_ns"],
                row["stop_ns"],
                collection=True,
                thread=row["thread"],
                attempt=row["attempt"],
            )
            for row in self._run.rows(_PAUSES)
        )

    @cached_property
    def _blocks(self) -> dict[str | None, list[Hold]]:
        names = ("frozen_seconds", "cpu_seconds", "contended_seconds")
        return _by_worker(
            Hold(
                row["worker"],
                row["start_ns"],
                row["stop_ns"],
                collection=False,
                **{name: row[name] for name in names},
            )
            for row in self._run.rows(_BLOCKS)
        )

    def pauses(self, worker: str | None, a: int, b: int) -> list[Hold]:
        """Return the collections in the process of a worker, or the scheduler, in an interval."""
        return _during(self._pauses.get(worker, []), a, b)

    def blocks(self, worker: str | None, a: int, b: int) -> list[Hold]:
        """Return the blocks of the event loop of a worker, or the scheduler, in an interval."""
        return _during(self._blocks.get(worker, []), a, b)

    def read(self, holds: Iterable[Hold]) -> None:
        """Read the samples of threads in some collections and blocks of workers.

        Parameters
        ----------
        holds : iterable of Hold
            These.
        """
        chosen = [
            hold
            for hold in dict.fromkeys(holds)
            if hold.worker is not None and hold.seconds >= _LEAST_SECONDS
        ]
        self._sampled = {hold: {} for hold in chosen}
        if not chosen:
            return
        columns = ([hold.worker for hold in chosen], [h.start for h in chosen])
        for row in self._run.rows(_SAMPLED, *columns, [hold.stop for hold in chosen]):
            sampled = Sampled(row["ran_seconds"], row["gil_seconds"])
            self._sampled[chosen[row["number"]]][row["attempt"]] = sampled

    def stopped(self, hold: Hold, attempt: int | None) -> bool:
        """Return whether the thread of an attempt waited for the GIL during most of a hold."""
        found = self._sampled.get(hold, {}).get(attempt if attempt is not None else -1)
        return found is not None and found.gil_seconds >= _WAITED * hold.seconds

    def holder(self, block: Hold, attempts: list[int]) -> tuple[Holder, int | None]:
        """Return who held the GIL in a frozen block, and the attempt if it was a task.

        Parameters
        ----------
        block : Hold
            The block.
        attempts : list of int
            The attempts whose functions ran during it.
        """
        sampled = self._sampled.get(block, {})
        ran = {n: s.ran_seconds for n, s in sampled.items() if s.ran_seconds is not None}
        ran = {n: seconds for n, seconds in ran.items() if n in attempts}
        total, least = sum(ran.values()), _HELD * block.seconds
        most = max(ran, key=lambda each: (ran[each], -each), default=None)
        if most is not None and ran[most] >= max(least, _ALONE * total):
            return Holder.TASK, most
        if total >= least:
            return Holder.SEVERAL, None
        if ran and (block.cpu_seconds or 0.0) >= block.seconds / 2:
            return Holder.NO_TASK, None
        if not block.is_contended:
            return Holder.UNKNOWN, None
        return (Holder.TASK, attempts[0]) if len(attempts) == 1 else (Holder.SEVERAL, None)


def _by_worker(holds: Iterable[Hold]) -> dict[str | None, list[Hold]]:
    found: dict[str | None, list[Hold]] = {}
    for hold in holds:
        found.setdefault(hold.worker, []).append(hold)
    return found


def _during(holds: list[Hold], a: int, b: int) -> list[Hold]:
    """Return those that overlap with an interval; they are in order and hardly overlap."""
    first = bisect_right(holds, a, key=lambda hold: hold.stop)
    last = bisect_left(holds, b, key=lambda hold: hold.start)
    return holds[first:last]
