"""Insights: diagnoses of a run, each with its cost, its evidence and a command that shows more.

Costs are seconds of the run's makespan, so that they can be compared: costs and thresholds count
only the time from the first submission to the end of the critical path. A cost that is measured in
thread-seconds is divided by the number of threads. Lost workers have no cost and are listed
first: they are a fault in every run. A run without a critical path has no costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.idleness import REASONS, ThreadUse, thread_use
from dask_strata.analysis.timeline.traffic import moved
from dask_strata.analysis.words import count, duration, number, percent, size
from dask_strata.analysis.worker_ends import phrase_of

if TYPE_CHECKING:
    from dask_strata.analysis.breakdown import PrefixUse
    from dask_strata.analysis.critical_path.walk import CriticalPath
    from dask_strata.analysis.series.thread_states import ThreadStates
    from dask_strata.run import Run


#: Values of `Insight.share_of`.
PATH = "path"
THREADS = "threads"
OVERLAPPING = "overlapping"


@dataclass(frozen=True)
class Insight:
    """One diagnosis.

    Attributes
    ----------
    text : str
        The diagnosis in one sentence.
    seconds : float or None
        Its cost in seconds of the makespan, at most the makespan; None if unknown.
    evidence : str
        The numbers that it is based on.
    command : str
        Arguments of ``dask-strata`` that show more, with RUN for the run's folder.
    grave : bool
        Whether it is a fault whatever it cost; faults are listed first.
    share_of : str or None
        The whole that the cost is a part of: `PATH`, the critical path, or `THREADS`, the
        thread-seconds. Insights of one whole exclude each other, so that their costs add up to at
        most the makespan. `OVERLAPPING` costs are also contained in the costs of others. None
        without a cost.
    """

    text: str
    seconds: float | None
    evidence: str
    command: str
    grave: bool = False
    share_of: str | None = None


@dataclass(frozen=True)
class Straggler:
    """An attempt that took much longer than others of its prefix."""

    prefix: str
    key: str
    worker: str | None
    seconds: float
    median_seconds: float

    @property
    def excess_seconds(self) -> float:
        """Seconds above the median."""
        return self.seconds - self.median_seconds


def stragglers(run: Run) -> tuple[Straggler, ...]:
    """Return attempts that computed for over 1 s and over five times their prefix's median.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    tuple of Straggler
        At most 100, those furthest above the median first.
    """
    rows = run.rows("""
        with p as (
            -- Of attempts whose function ended, as the medians of `prefixes`.
            select prefix, median(compute_seconds) as median_seconds from attempts
            where compute_seconds is not null and outcome not in ('running', 'lost', 'released')
            group by prefix having count(*) > 3
        )
        select coalesce(a.prefix, '(unknown)') as prefix, a.key, a.worker,
               a.compute_seconds as seconds, p.median_seconds
        from attempts a join p on p.prefix is not distinct from a.prefix
        where a.compute_seconds > 1 and p.median_seconds > 0
          and a.compute_seconds > 5 * p.median_seconds
        order by seconds - median_seconds desc, a.key limit 100
    """)
    return tuple(Straggler(**row) for row in rows)


def insights(
    run: Run,
    used: tuple[PrefixUse, ...],
    path: CriticalPath,
    states: ThreadStates | None = None,
) -> tuple[Insight, ...]:
    """Return the insights of a run: faults first, then by their cost.

    Parameters
    ----------
    run : Run
        The run.
    used : tuple of PrefixUse
        Its prefixes, those that computed longest first.
    path : CriticalPath
        Its critical path.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.
    """
    found = [*_lost_workers(run), *_memory(run), *_versions(run)]
    if not path.makespan_seconds:
        found += _repeated(run, path, None, None)
    else:
        window = path.segments[0].start, path.segments[-1].stop
        spent = thread_use(run, *window, states)
        found += [
            *_repeated(run, path, window, spent),
            *_path(path),
            *_idle(spent, path),
            *_transfers(run, spent, path),
            *_stragglers(used, stragglers(run), path),
            *_imbalance(spent, path),
            *_loop_blocks(run, window, path),
        ]
    return tuple(sorted(found, key=lambda i: (not i.grave, -(i.seconds or 0))))


#: Least share of the makespan that makes an insight: of a cause on the critical path, of idle
#: threads, of transfers, of threads that were idle while tasks waited behind others, and of the time
#: in which an event loop was blocked.
_LEAST_ON_PATH = 0.05
_LEAST_IDLE = 0.5
_LEAST_TRANSFER = 0.2
_LEAST_IMBALANCE = 0.05
_LEAST_BLOCKED = 0.05

#: Longest block of an event loop that makes no insight by itself, in seconds.
_LONG_BLOCK = 1.0

#: Least CPU time of a process, as a share of the time in which no thread of it ran Python, if it was
#: running. It is small because processes of a busy host take turns.
_LEAST_CPU = 0.1

#: The end of a sentence about a cause on the critical path.
_CAUSE_TEXTS = {
    "compute": "computing: only faster tasks or shorter chains of tasks make the run shorter",
    "transfer": "fetching data from other workers",
    "waiting to fetch": "waiting for other transfers to end before dependencies could be fetched",
    "deserialize": "unpacking definitions of tasks and collecting their dependencies in the worker",
    "I/O": "opening files",
    "spill": "spilling results to disk or reading them back",
    "waiting for a worker": "waiting for a free worker thread",
    "other clients": "waiting for worker threads that were busy with other clients' tasks",
    "waiting for a resource": "waiting for a resource that other tasks used, or for a worker that "
    "meets a restriction",
    "paused worker": "waiting for workers that Dask had paused because of their memory",
    "blocked event loop": "waiting for an event loop that was blocked, a worker's or the scheduler's",
    "silent worker": "waiting until the scheduler removed a worker that sent no heartbeats",
    "scheduler": "scheduling and communication",
    "client": "waiting for the client, while the cluster had other work",
    "nothing submitted": "without submitted work: the client did something else",
}

#: The end of a sentence about idle threads, by the main reason.
_IDLE_TEXTS = {
    "nothing submitted": "no work had been submitted",
    "tasks ready elsewhere": "ready tasks were queued, or assigned to workers that were busy",
    "too few tasks at once": "too few tasks could run at the same time",
}


def _path(path: CriticalPath) -> Iterator[Insight]:
    for cause, seconds in path.seconds.items():
        if path.share(cause) > _LEAST_ON_PATH and cause in _CAUSE_TEXTS:
            yield Insight(
                f"{percent(path.share(cause))} of the critical path was {_CAUSE_TEXTS[cause]}",
                seconds,
                f"{duration(seconds)} of {duration(path.makespan_seconds)} from the first submission to "
                f"the last result, on a path through {count(path.tasks, 'task')}",
                "show RUN",
                share_of=PATH,
            )


def _idle(spent: ThreadUse, path: CriticalPath) -> Iterator[Insight]:
    if spent.share("idle") <= _LEAST_IDLE:
        return
    by_reason = {reason: sum(w.seconds[reason] for w in spent.idle) for reason in REASONS}
    main = max(by_reason, key=lambda reason: by_reason[reason])
    with_tasks = sum(s for reason, s in by_reason.items() if reason != "nothing submitted")
    text = f"Threads were idle {percent(spent.share('idle'))} of the makespan"
    parts = ", ".join(f"{reason} {duration(seconds)}" for reason, seconds in by_reason.items())
    parts = parts if spent.idle else "the reasons are not on record"
    cost = min(with_tasks, spent.seconds["idle"]) / spent.total_seconds * path.makespan_seconds
    yield Insight(
        f"{text}, mostly because {_IDLE_TEXTS[main]}" if by_reason[main] else text,
        cost if spent.idle else None,
        f"{number(spent.seconds['idle'])} of {number(spent.total_seconds)} thread-seconds: {parts}",
        "show RUN",
        share_of=THREADS,
    )


def _transfers(run: Run, spent: ThreadUse, path: CriticalPath) -> Iterator[Insight]:
    if spent.share("transfer") > _LEAST_TRANSFER:
        total = moved(run)
        more_by_shuffles = (total.shuffle_bytes or 0) > (total.transfer_bytes or 0)
        yield Insight(
            f"Threads waited for transfers {percent(spent.share('transfer'))} of the makespan",
            spent.share("transfer") * path.makespan_seconds,
            f"{number(spent.seconds['transfer'])} of {number(spent.total_seconds)} thread-seconds",
            "query RUN 'select shuffle, kind, worker, sent_bytes, wait_seconds from shuffles "
            "order by sent_bytes desc'"
            if more_by_shuffles
            else "query RUN 'select source, destination, count(*), sum(total_bytes) from transfers "
            "group by all order by 4 desc'",
            share_of=THREADS,
        )


def _stragglers(
    used: tuple[PrefixUse, ...], late: tuple[Straggler, ...], path: CriticalPath
) -> Iterator[Insight]:
    on_path: dict[str, float] = {}
    for segment in path.segments:
        if segment.key is not None and segment.cause in {"compute", "I/O"}:
            on_path[segment.key] = on_path.get(segment.key, 0.0) + segment.seconds
    for prefix in used[:5]:
        of_prefix = [straggler for straggler in late if straggler.prefix == prefix.prefix]
        if of_prefix:
            worst = of_prefix[0]
            yield Insight(
                f"One {worst.prefix} task took {duration(worst.seconds)}, "
                f"{number(worst.seconds / worst.median_seconds)} times the median",
                min(worst.excess_seconds, on_path.get(worst.key, 0.0)),
                f"{count(len(of_prefix), 'attempt')} of {prefix.n_attempts:,} took more than five times "
                f"the median of {duration(worst.median_seconds)}; {worst.key} on {worst.worker}",
                f"tasks RUN --prefix {worst.prefix} --sort compute_seconds",
                share_of=OVERLAPPING,
            )


def _imbalance(spent: ThreadUse, path: CriticalPath) -> Iterator[Insight]:
    beside = sum(spent.beside.values())
    share = beside / spent.total_seconds if spent.total_seconds else 0.0
    if share > _LEAST_IMBALANCE:
        name, most = next(iter(spent.beside.items()))
        yield Insight(
            f"Threads were idle {percent(share)} of the makespan while tasks waited behind others on "
            f"busy workers, mostly on worker {name}",
            share * path.makespan_seconds,
            f"{number(beside)} of {number(spent.total_seconds)} thread-seconds, {number(most)} of them "
            f"for tasks on worker {name}; {count(len(spent.beside), 'busy worker')} in all",
            "query RUN 'select name, worker, n_attempts, compute_seconds from workers'",
            share_of=OVERLAPPING,
        )


def _lost_workers(run: Run) -> Iterator[Insight]:
    ends = run.rows("""
        select cause, signal, exit_status, case when cause = 'closed' then reason end as reason,
               job_state, max(memory_bytes) as memory_bytes, max(memory_limit_bytes) as memory_limit_bytes,
               count(*) as n
        from worker_ends left join _job_ends using (worker, stop)
        where ended = 'unexpected' group by 1, 2, 3, 4, 5 order by n desc, cause
    """)
    if ends:
        how = ", ".join(f"{end['n']:,} {phrase_of(end)}" for end in ends[:_ENDS])
        n, more = sum(end["n"] for end in ends), " and others" if len(ends) > _ENDS else ""
        text = f"{count(n, 'worker')} ended unexpectedly: {how}{more} (table worker_ends)"
        command = "query RUN 'from worker_ends'"
        yield Insight(text, None, f"{count(n, 'row')} of worker_ends", command, grave=True)
    killed = run.rows("select count(*) as n from worker_events where action = 'memory-limit-kill'")[
        0
    ]["n"]
    # The sentence above has those whose removal is on record, too.
    killed -= sum(end["n"] for end in ends[:_ENDS] if end["cause"] == "memory limit")
    if killed > 0:
        text = f"{count(killed, 'worker')} killed for using too much memory"
        command = "query RUN 'select time, worker, action, reason from worker_events'"
        yield Insight(text, None, count(killed, "memory-limit-kill event"), command, grave=True)


#: Most causes of ended workers in a sentence.
_ENDS = 3

#: Attempts that were repeated, with how the worker of a lost attempt ended, and the seconds that
#: they computed, in all and within a window in ns.
_REPEATED = """
    with removals as (
        select worker, stimulus_id, min(ended) as ended from worker_ends
        where stimulus_id is not null group by worker, stimulus_id
    ), repeated as (
        select attempt, _key, worker, stimulus_id, outcome, ended, compute_seconds
        from attempts left join removals using (worker, stimulus_id)
        where outcome in ('retried', 'lost')
    ), within as (
        select attempt,
               sum(greatest(least(epoch_ns(stop), $2) - greatest(epoch_ns(start), $1), 0)) / 1e9
                   as seconds
        from phases semi join repeated using (attempt)
        where action in ('compute', 'executing') group by attempt
    )
    select outcome, ended, count(*) as n, count(distinct _key) filter (compute_seconds is not null)
               as n_begun, count(distinct (worker, stimulus_id)) as n_workers,
           sum(compute_seconds) as seconds,
           sum(coalesce(w.seconds, compute_seconds)) as within
    from repeated left join within w using (attempt) group by outcome, ended
    order by outcome desc, ended desc
"""


def _repeated(
    run: Run, path: CriticalPath, window: tuple[int, int] | None, spent: ThreadUse | None
) -> Iterator[Insight]:
    rest = spent.seconds["compute"] if spent else 0.0
    for row in run.rows(_REPEATED, *(window or (0, 0))):
        planned = row["outcome"] == "lost" and row["ended"] == "planned"
        if planned and not row["n_begun"]:
            continue  # tasks that had not begun were only assigned to another worker
        within = min(row["within"] or 0.0, rest)
        rest -= within
        known = "not on record" if row["seconds"] is None else duration(row["seconds"])
        if planned:
            text = (
                f"{count(row['n_begun'], 'task')} had to be computed again because a worker was "
                "retired, restarted or closed"
            )
        else:
            whose = "its" if row["n"] == 1 else "their"
            lost = f"lost with {whose} worker{'s' if row['n_workers'] > 1 else ''}"
            how = "failed and retried" if row["outcome"] == "retried" else lost
            text = f"{count(row['n'], 'attempt')} {how}"
        yield Insight(
            text,
            within / spent.total_seconds * path.makespan_seconds if spent and within else None,
            f"{row['n']:,} of {count(run.n_rows('attempts'), 'attempt')}; they computed: {known}",
            'query RUN "select key, worker, exception from attempts '
            f"where outcome = '{row['outcome']}'\"",
            grave=row["outcome"] == "lost" and row["ended"] == "unexpected",
            share_of=THREADS if within else None,
        )


def _memory(run: Run) -> Iterator[Insight]:
    row = run.rows("""
        select count(*) filter (action = 'spill') as n,
               coalesce(sum(nbytes) filter (action = 'spill'), 0)::bigint as b,
               sum(seconds) filter (action = 'spill') as written,
               sum(seconds) filter (action <> 'spill') as read, count(*) as n_rows from spills
    """)[0]
    if row["n"]:
        written, read = row["written"] or 0, row["read"] or 0
        yield Insight(
            f"{count(row['n'], 'result')} ({size(row['b'])}) spilled to disk: workers wrote "
            f"and read them for {duration(written + read)}",
            None,
            f"{count(row['n_rows'], 'row')} of spills, {duration(written)} of writing and {duration(read)} "
            "of reading",
            "query RUN 'select worker, action, count(*), sum(nbytes), sum(seconds) from spills "
            "group by all'",
        )
    paused = run.rows("select count(*) as n from _pauses")[0]["n"]
    if paused:
        yield Insight(
            f"Workers were paused {count(paused, 'time')} for using too much memory",
            None,
            count(paused, "pause"),
            "query RUN 'from cluster_sizes where n_paused > 0'",
        )


def _versions(run: Run) -> Iterator[Insight]:
    for row in run.rows(
        "select name, count(distinct version) as n from package_mismatches group by name "
        "order by name limit 3"
    ):
        yield Insight(
            f"Processes have different versions of {row['name']} (table package_mismatches)",
            None,
            count(row["n"], "version"),
            "query RUN 'select * from package_mismatches'",
        )


#: The reason for blocks of an event loop, and advice for a worker and for the scheduler.
_BLOCK_TEXTS = {
    "code": (
        "by code that ran on it",
        "keep slow code out of coroutines and plugins, and results small and quick to serialize",
        "submit smaller graphs, and keep other code off the scheduler",
    ),
    "GIL": (
        "while one call held Python's GIL or many threads competed for it",
        "call functions that release the GIL, or use more processes with fewer threads",
        "keep code that holds the GIL out of the scheduler's process",
    ),
    "stopped": (
        "while the process hardly used the CPU: a call waited with Python's GIL, or the host was busy",
        "check calls that wait without releasing the GIL, and the memory and load of the host",
        "check calls that wait without releasing the GIL, and the memory and load of the host",
    ),
    "unknown": (
        "by code that ran on it or while other threads held Python's GIL",
        "keep slow code out of coroutines and plugins, and call functions that release the GIL",
        "submit smaller graphs, and keep other code off the scheduler and out of its process",
    ),
}

_BLOCKS = """
    select process, worker, n.name, greatest(start_ns, $1) as start, least(stop_ns, $2) as stop,
           (stop_ns - start_ns) / 1e9 as seconds, frozen_seconds, cpu_seconds
    from _loop_blocks left join (select worker, any_value(name) as name from workers group by worker) n
      using (worker)
    where stop_ns > $1 and start_ns < $2 order by start_ns
"""


def _loop_blocks(run: Run, window: tuple[int, int], path: CriticalPath) -> Iterator[Insight]:
    """Yield an insight for the scheduler, and one for the worker that was blocked longest."""
    by_loop: dict[str, list[dict[str, Any]]] = {}
    for block in run.rows(_BLOCKS, *window):
        by_loop.setdefault(block["process"], []).append(block)
    totals = {loop: sum(_seconds(b) for b in blocks) for loop, blocks in by_loop.items()}
    for of_worker in (False, True):
        loops = [loop for loop in totals if (by_loop[loop][0]["worker"] is not None) == of_worker]
        if not loops:
            continue
        longest = max(loops, key=lambda loop: totals[loop])
        blocks, total = by_loop[longest], totals[longest]
        most = max(_seconds(b) for b in blocks)
        if most <= _LONG_BLOCK and total <= _LEAST_BLOCKED * path.makespan_seconds:
            continue
        worker = blocks[0]["worker"]
        whose = f"worker {blocks[0]['name'] or worker}" if of_worker else "the scheduler"
        how, for_worker, for_scheduler = _BLOCK_TEXTS[_reason(blocks)]
        others = f"; {count(len(loops), 'worker')} had blocks" if of_worker else ""
        yield Insight(
            f"The event loop of {whose} was blocked for {duration(total)} in all and {duration(most)} "
            f"at most, mostly {how}: {for_worker if of_worker else for_scheduler}",
            _on_path(blocks, worker, path),
            f"{count(len(blocks), 'block')} of at least 0.1 s in {duration(path.makespan_seconds)}"
            f"{others}; the cost is the part that tasks on the critical path waited for",
            "query RUN 'select start, worker, seconds, frozen_seconds, cpu_seconds from loop_blocks "
            "order by seconds desc'",
            share_of=OVERLAPPING,
        )


def _seconds(block: dict[str, Any]) -> float:
    """Return the length of a block within the makespan, in seconds."""
    return float(block["stop"] - block["start"]) / 1e9


def _reason(blocks: list[dict[str, Any]]) -> str:
    """Return the reason that applies to most of the time of blocks, see `_BLOCK_TEXTS`."""
    total = dict.fromkeys(_BLOCK_TEXTS, 0.0)
    for block in blocks:
        frozen, cpu = block["frozen_seconds"], block["cpu_seconds"]
        if frozen is None:
            reason = "unknown"
        elif frozen < block["seconds"] / 2:
            reason = "code"
        else:
            reason = "stopped" if cpu is not None and cpu < _LEAST_CPU * frozen else "GIL"
        total[reason] += _seconds(block)
    return max(total, key=lambda reason: total[reason])


def _on_path(blocks: list[dict[str, Any]], worker: str | None, path: CriticalPath) -> float:
    """Return the seconds in which the critical path waited for a loop that was blocked."""
    ends = np.array([(block["start"], block["stop"]) for block in blocks], np.int64)
    blocked = np.concatenate([[0], np.cumsum(ends[:, 1] - ends[:, 0])])
    blocked = np.repeat(blocked, 2)[1:-1]  # at each start and stop
    waits = np.array(
        [
            (segment.start, segment.stop)
            for segment in path.segments
            if segment.cause == "blocked event loop" and worker in {None, segment.worker}
        ],
        np.int64,
    ).reshape(-1, 2)
    base = ends[0, 0]
    before, after = (np.interp(waits[:, i] - base, ends.ravel() - base, blocked) for i in (0, 1))
    return float((after - before).sum()) / 1e9
