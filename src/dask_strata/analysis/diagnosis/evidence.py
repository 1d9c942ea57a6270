"""What rules can look at: the critical path of a run, and facts that several of them need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.critical_path.occupants import CLIENT_CAUSES
from dask_strata.analysis.diagnosis.client import ClientFacts
from dask_strata.analysis.diagnosis.conditions import Conditions
from dask_strata.analysis.diagnosis.fates import Fates
from dask_strata.analysis.diagnosis.file_uses import FileUse, file_uses
from dask_strata.analysis.diagnosis.loop_blocks import LoopBlocks
from dask_strata.analysis.diagnosis.machine import MachineFacts
from dask_strata.analysis.diagnosis.samples import Runner, Samples
from dask_strata.analysis.failures import Failure, failures
from dask_strata.analysis.series.thread_states import ThreadStates, thread_states

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.walk import CriticalPath, Segment
    from dask_strata.analysis.series.columns import Array
    from dask_strata.run import Run

#: Causes of segments in which a task's function runs on the thread that the run waits for.
RUNNING = frozenset({"compute", "I/O"})

#: Causes of segments in which a task waits for data of other workers.
FETCHING = ("transfer", "waiting to fetch")

#: Attempts at barriers of P2P shuffles, and at tasks that depend on one.
_OF_SHUFFLES = """
    with chosen as (select unnest($1::bigint[]) as attempt)
    select attempt from _shuffle_barriers semi join chosen using (attempt)
    union
    select a.attempt from attempts a semi join chosen using (attempt)
    where a._key in (
        select e._key from graph_edges e join _shuffle_barriers b on b._key = e._dependency)
"""


class Evidence:
    """The evidence of one run.

    Parameters
    ----------
    run : Run
        The run.
    path : CriticalPath
        Its critical path, with at least one segment.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.
    """

    def __init__(self, run: Run, path: CriticalPath, states: ThreadStates | None = None) -> None:
        self.run, self.path = run, path
        self.segments: tuple[Segment, ...] = path.segments
        self._states = states

    @property
    def makespan_seconds(self) -> float:
        """Seconds from the client's first submission to the last result."""
        return self.path.makespan_seconds

    @property
    def window(self) -> tuple[int, int]:
        """First and last moment of the makespan, in ns since the epoch."""
        if not self.segments:
            return 0, 0
        return self.segments[0].start, self.segments[-1].stop

    @cached_property
    def states(self) -> ThreadStates:
        """States of the threads of all workers."""
        return thread_states(self.run) if self._states is None else self._states

    @cached_property
    def runners(self) -> dict[int, Runner]:
        """The execution that each segment waited for, by the index of the segment."""
        found = {}
        for index, segment in enumerate(self.segments):
            occupant = segment.occupant
            if segment.cause in RUNNING and segment.attempt is not None:
                found[index] = Runner(segment.attempt, segment.key, segment.prefix, segment.worker)
            elif (
                segment.cause == "waiting for a worker"
                and occupant is not None
                and occupant.attempt is not None
            ):
                found[index] = Runner(
                    occupant.attempt, occupant.name, occupant.prefix, occupant.worker
                )
        return found

    def where(self, *causes: str) -> dict[int, float]:
        """Return the seconds of the segments with some causes, by their index."""
        return {i: s.seconds for i, s in enumerate(self.segments) if s.cause in causes}

    def whole(self, indices: Iterable[int]) -> dict[int, float]:
        """Return all seconds of some segments, by their index."""
        return {index: self.segments[index].seconds for index in indices}

    @cached_property
    def _threads(self) -> tuple[Array, Array, Array, Array]:
        """Times in ns from the start of the makespan; thread-ns up to each, of three kinds.

        Connected, idle, and in functions of tasks.
        """
        base = self.window[0]
        times, idle, threads, busy = [], [], [], []
        for worker in self.states.workers:
            times.append(worker.times - base)
            idle.append(np.diff(worker.idle, prepend=0, append=0))
            busy.append(np.diff(worker.computing, prepend=0, append=0))
            here = np.full(len(worker.times), 0)
            here[0], here[-1] = worker.threads, -worker.threads
            threads.append(here)
        if not times:
            return np.array([0.0, 1.0]), np.zeros(2), np.zeros(2), np.zeros(2)
        at = np.concatenate(times)
        order = np.argsort(at, kind="stable")
        at = at[order]
        held = np.diff(at, append=at[-1])
        sums = []
        for steps in (threads, idle, busy):
            level = np.cumsum(np.concatenate(steps)[order])
            sums.append(np.concatenate([[0.0], np.cumsum(level * held)[:-1]]))
        return at.astype(np.float64), sums[0], sums[1], sums[2]

    def _between(self, amounts: Array, start: int, stop: int) -> float:
        base = self.window[0]
        a, b = np.interp([start - base, stop - base], self._threads[0], amounts)
        return float(b - a)

    def idle_share(self, start: int, stop: int) -> float:
        """Return the share of all threads that were idle between two moments, 0 to 1."""
        connected = self._between(self._threads[1], start, stop)
        return self._between(self._threads[2], start, stop) / connected if connected > 0 else 0.0

    def free_share(self, start: int, stop: int) -> float:
        """Return the share of all threads that ran no task between two moments, 0 to 1."""
        connected = self._between(self._threads[1], start, stop)
        if connected <= 0:
            return 0.0
        return min(max(1 - self._between(self._threads[3], start, stop) / connected, 0.0), 1.0)

    def n_threads(self, start: int, stop: int) -> float:
        """Return the mean number of threads that were connected between two moments."""
        return self._between(self._threads[1], start, stop) / (stop - start)

    @cached_property
    def idle_shares(self) -> tuple[float, ...]:
        """Share of all threads that were idle, for each segment."""
        return tuple(self.idle_share(s.start, s.stop) for s in self.segments)

    @cached_property
    def prefixes(self) -> dict[str, dict[str, Any]]:
        """Sums and medians of the attempts that ended, by prefix: seconds, bytes, calls."""
        rows = self.run.rows("""
            select coalesce(prefix, '(unknown)') as prefix, count(*) as n,
                   median(compute_seconds) as median_seconds, avg(compute_seconds) as mean_seconds,
                   sum(compute_seconds) as seconds, max(compute_seconds) as max_seconds,
                   median(nbytes) as median_bytes, sum(cpu_seconds) as cpu_seconds,
                   coalesce(sum(read_calls), 0)::bigint as read_calls,
                   coalesce(sum(write_calls), 0)::bigint as write_calls,
                   coalesce(sum(read_bytes), 0)::double as read_bytes,
                   coalesce(sum(write_bytes), 0)::double as write_bytes,
                   coalesce(sum(n_opened), 0)::bigint as n_opened
            from attempts where compute_seconds is not null
              and outcome not in ('running', 'lost', 'released')
            group by 1
        """)
        return {row["prefix"]: row for row in rows}

    @cached_property
    def attempts(self) -> dict[int, dict[str, Any]]:
        """The attempts that the path waited for, by number."""
        numbers = sorted({runner.attempt for runner in self.runners.values()})
        rows = self.run.rows(
            """
            select attempt, _key, key, key_type, coalesce(prefix, '(unknown)') as prefix, worker,
                   outcome, compute_seconds, cpu_seconds, process_cpu_seconds, nbytes, read_bytes,
                   write_bytes, read_calls, write_calls, storage_read_bytes, n_opened
            from attempts where attempt in (select unnest($1::bigint[]))
            """,
            numbers,
        )
        return {row["attempt"]: row for row in rows}

    @cached_property
    def client(self) -> ClientFacts:
        """What clients did."""
        return ClientFacts(self.run, self.segments)

    @cached_property
    def machine(self) -> MachineFacts:
        """Workers and their hosts."""
        return MachineFacts(self.run, self.window)

    @cached_property
    def fates(self) -> Fates:
        """How the attempts on the path ended."""
        return Fates(self.run, self.segments, self.runners)

    @cached_property
    def loop_blocks(self) -> LoopBlocks:
        """Blocks of event loops within the makespan."""
        return LoopBlocks(self.run, self.window)

    @cached_property
    def file_uses(self) -> list[FileUse]:
        """Files and calls of the executions on the path, by prefix."""
        return file_uses(self)

    @cached_property
    def samples(self) -> Samples:
        """What threads of tasks waited for, by the sampler."""
        return Samples(self.run)

    @cached_property
    def keys_on_path(self) -> dict[int, int]:
        """Ids of the keys of the attempts on the path, by number of the attempt."""
        numbers = sorted({s.attempt for s in self.segments if s.attempt is not None})
        query = "select attempt, _key from attempts where attempt in (select unnest($1::bigint[]))"
        return {row["attempt"]: row["_key"] for row in self.run.rows(query, numbers)}

    def others_idle_share(self, start: int, stop: int) -> float:
        """Return the share of all threads but one that were idle between two moments, 0 to 1."""
        others = self.n_threads(start, stop) - 1
        if others <= 0:
            return 1.0
        idle = self.idle_share(start, stop) * self.n_threads(start, stop)
        return min(idle / others, 1.0)

    @cached_property
    def chains(self) -> list[list[int]]:
        """Runs of segments between submissions, each as a list of indices that ran tasks."""
        found: list[list[int]] = [[]]
        for index, segment in enumerate(self.segments):
            if segment.cause in CLIENT_CAUSES:
                found.append([])
            elif index in self.runners:
                found[-1].append(index)
        return [chain for chain in found if chain]

    def main_prefix(self, attempts: dict[int, float]) -> str:
        """Return the prefix with most seconds among some attempts of the path."""
        sums: dict[str, float] = {}
        for runner in set(self.runners.values()):
            if runner.attempt in attempts:
                prefix = runner.prefix or "(unknown)"
                sums[prefix] = sums.get(prefix, 0.0) + attempts[runner.attempt]
        return max(sums, key=lambda prefix: sums[prefix])

    def main_prefix_of(self, claims: dict[int, float]) -> str:
        """Return the prefix that ran, or held what was waited for, longest in some segments."""
        sums: dict[str, float] = {}
        for index, seconds in claims.items():
            runner, occupant = self.runners.get(index), self.segments[index].occupant
            prefix = runner.prefix if runner is not None else occupant and occupant.prefix
            sums[prefix or "(unknown)"] = sums.get(prefix or "(unknown)", 0.0) + seconds
        return max(sums, key=lambda prefix: sums[prefix])

    @cached_property
    def _sources(self) -> dict[tuple[int | None, str | None], set[str]]:
        """Addresses of the workers that sent data while an attempt waited for data, by attempt."""
        spans: dict[tuple[int | None, str | None], tuple[int, int]] = {}
        for segment in self.segments:
            if segment.cause in FETCHING:
                waiter = segment.attempt, segment.worker
                start, stop = spans.get(waiter, (segment.start, segment.stop))
                spans[waiter] = min(start, segment.start), max(stop, segment.stop)
        rows = self.run.rows(
            """
            select distinct s.number, t.source
            from (select unnest(range(len($1))) as number, unnest($1::varchar[]) as worker,
                         unnest($2::bigint[]) as start, unnest($3::bigint[]) as stop) s
            join transfers t on t.destination = s.worker and epoch_ns(t.start) < s.stop
              and coalesce(epoch_ns(t.stop), s.stop) > s.start
            """,
            [worker for _, worker in spans],
            [start for start, _ in spans.values()],
            [stop for _, stop in spans.values()],
        )
        waiters = list(spans)
        found: dict[tuple[int | None, str | None], set[str]] = {}
        for row in rows:
            found.setdefault(waiters[row["number"]], set()).add(row["source"])
        return found

    def workers_of(self, index: int) -> set[str | None]:
        """Return the addresses of the workers that a segment waited for.

        These are its own worker, and those that sent it data.
        """
        segment = self.segments[index]
        if segment.cause not in FETCHING:
            return {segment.worker}
        return {segment.worker, *self._sources.get((segment.attempt, segment.worker), ())}

    def beside(self, condition: Conditions) -> dict[int, float]:
        """Return how long a condition of workers held up tasks under another cause, by segment.

        These are fetches, the unpacking of their data, and waits for a thread that ran no task.

        Parameters
        ----------
        condition : Conditions
            When workers had it.
        """
        found = {}
        for index in self.where(*FETCHING, "deserialize", "waiting for a worker"):
            segment = self.segments[index]
            if segment.cause == "waiting for a worker" and index in self.runners:
                continue
            seconds = condition.seconds(segment.start, segment.stop, self.workers_of(index))
            if seconds:
                found[index] = seconds
        return found

    @cached_property
    def paused_seconds(self) -> dict[int, float]:
        """Seconds that pauses of workers cost, by segment.

        Threads of workers that were not paused went on, and so did tasks that had begun.
        """
        return {
            index: seconds * self.free_share(self.segments[index].start, self.segments[index].stop)
            for index, seconds in self.where("paused worker").items()
        }

    def conditions(self, name: str) -> Conditions:
        """Return when workers had a condition.

        Parameters
        ----------
        name : str
            The condition, see the table ``_worker_conditions``.
        """
        rows = self.run.rows(
            "select worker, start, stop from _worker_conditions "
            "where condition = $1 and stop > start",
            name,
        )
        return Conditions((row["worker"], row["start"], row["stop"]) for row in rows)

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Exceptions of failed tasks."""
        return failures(self.run)

    @cached_property
    def shuffle_segments(self) -> frozenset[int]:
        """Segments of tasks of P2P shuffles.

        Their purpose is to move data, and each output runs where its shards are.
        """
        numbers = sorted({s.attempt for s in self.segments if s.attempt is not None})
        rows = self.run.rows(_OF_SHUFFLES, numbers)
        attempts = {row["attempt"] for row in rows}
        return frozenset(i for i, s in enumerate(self.segments) if s.attempt in attempts)

    def runner_seconds(self) -> Iterator[tuple[int, float, Runner]]:
        """Yield index, seconds and execution of the segments in which a function ran."""
        for index, runner in self.runners.items():
            yield index, self.segments[index].seconds, runner
