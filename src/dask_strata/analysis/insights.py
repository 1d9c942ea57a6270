"""Insights: diagnoses of a run, each with its cost, its evidence and a command that shows more.

Costs are seconds of the run's makespan, so that they can be compared. A cost that is measured in
thread-seconds is divided by the number of threads. Lost workers have no cost and are listed
first: they are a fault in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.idleness import REASONS, IdleWorker
from dask_strata.analysis.words import count, percent
from dask_strata.schema.values import UNEXPECTED

if TYPE_CHECKING:
    from dask_strata.analysis.breakdown import Breakdown, PrefixUse
    from dask_strata.analysis.critical_path.walk import CriticalPath
    from dask_strata.run import Run


@dataclass(frozen=True)
class Insight:
    """One diagnosis.

    Attributes
    ----------
    text : str
        The diagnosis in one sentence.
    seconds : float or None
        Its cost in seconds of the makespan; None if unknown.
    evidence : str
        The numbers that it is based on.
    command : str
        Arguments of ``dask-strata`` that show more, with RUN for the run's folder.
    grave : bool
        Whether it is a fault whatever it cost; faults are listed first.
    """

    text: str
    seconds: float | None
    evidence: str
    command: str
    grave: bool = False


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
            select prefix, median(compute_seconds) as median_seconds from attempts
            where compute_seconds is not null group by prefix having count(*) > 3
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
    spent: Breakdown,
    used: tuple[PrefixUse, ...],
    path: CriticalPath,
    idle: tuple[IdleWorker, ...],
) -> tuple[Insight, ...]:
    """Return the insights of a run: faults first, then by their cost.

    Parameters
    ----------
    run : Run
        The run.
    spent : Breakdown
        Its thread-seconds.
    used : tuple of PrefixUse
        Its prefixes, those that computed longest first.
    path : CriticalPath
        Its critical path.
    idle : tuple of IdleWorker
        Its idle threads, by worker and reason.
    """
    found = [
        *_lost_workers(run),
        *_repeated(run, spent, path),
        *_path(path),
        *_idle(spent, idle, path),
        *_transfers(spent, path),
        *_stragglers(used, stragglers(run), path),
        *_imbalance(run),
        *_memory(run),
        *_versions(run),
        *_lag(run),
    ]
    return tuple(sorted(found, key=lambda i: (not i.grave, -(i.seconds or 0))))


#: Least share of the critical path, of idle threads and of transfers that makes an insight.
_LEAST_ON_PATH = 0.05
_LEAST_IDLE = 0.5
_LEAST_TRANSFER = 0.2

#: The end of a sentence about a cause on the critical path.
_CAUSE_TEXTS = {
    "compute": "computing: only faster tasks or shorter chains of tasks make the run shorter",
    "transfer": "fetching data from other workers",
    "deserialize": "unpacking the definitions of tasks",
    "I/O": "opening files",
    "spill": "spilling results to disk or reading them back",
    "waiting for a worker": "waiting for a free worker thread",
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
                f"{seconds:.2f} s of {path.makespan_seconds:.2f} s from the first submission to the "
                f"last result, on a path through {count(path.tasks, 'task')}",
                "show RUN",
            )


def _idle(spent: Breakdown, idle: tuple[IdleWorker, ...], path: CriticalPath) -> Iterator[Insight]:
    if not spent.total_seconds or spent.share("idle") <= _LEAST_IDLE:
        return
    by_reason = {reason: sum(worker.seconds[reason] for worker in idle) for reason in REASONS}
    main = max(by_reason, key=lambda reason: by_reason[reason])
    with_tasks = sum(s for reason, s in by_reason.items() if reason != "nothing submitted")
    text = f"Threads were idle {percent(spent.share('idle'))} of the time"
    parts = ", ".join(f"{reason} {seconds:.1f} s" for reason, seconds in by_reason.items())
    yield Insight(
        f"{text}, mostly because {_IDLE_TEXTS[main]}" if by_reason[main] else text,
        with_tasks / spent.total_seconds * path.makespan_seconds,
        f"{spent.seconds['idle']:.1f} of {spent.total_seconds:.1f} thread-seconds: {parts}",
        "show RUN",
    )


def _transfers(spent: Breakdown, path: CriticalPath) -> Iterator[Insight]:
    if spent.share("transfer") > _LEAST_TRANSFER:
        yield Insight(
            f"Threads waited for transfers {percent(spent.share('transfer'))} of the time",
            spent.share("transfer") * path.makespan_seconds,
            f"{spent.seconds['transfer']:.1f} of {spent.total_seconds:.1f} thread-seconds",
            "query RUN 'select source, destination, count(*), sum(total_bytes) from transfers "
            "group by all order by 4 desc'",
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
                f"One {worst.prefix} task took {worst.seconds:.1f} s, "
                f"{worst.seconds / worst.median_seconds:.0f} times the median",
                min(worst.excess_seconds, on_path.get(worst.key, 0.0)),
                f"{count(len(of_prefix), 'attempt')} of {prefix.n_attempts:,} took more than five times "
                f"the median of {worst.median_seconds:.3f} s; {worst.key} on {worst.worker}",
                f"tasks RUN --prefix {worst.prefix} --sort compute_seconds",
            )


def _imbalance(run: Run) -> Iterator[Insight]:
    row = run.rows("""
        select count(*) as n, max(compute_seconds) as most, avg(coalesce(compute_seconds, 0)) as mean,
               arg_max(coalesce(name, worker), compute_seconds) as name,
               arg_max(coalesce(nthreads, 1), compute_seconds) as threads from workers
    """)[0]
    if row["n"] > 1 and row["mean"] and row["most"] > 1 and row["most"] > 1.5 * row["mean"]:
        yield Insight(
            f"Worker {row['name']} computed {row['most'] / row['mean']:.1f} times as long as the "
            "average",
            (row["most"] - row["mean"]) / row["threads"],
            f"{row['most']:.1f} s of compute, {row['mean']:.1f} s on average of "
            f"{count(row['n'], 'worker')}",
            "query RUN 'select name, worker, n_attempts, compute_seconds from workers'",
        )


def _lost_workers(run: Run) -> Iterator[Insight]:
    n = run.rows("select count(*) as n from workers where starts_with(end_reason, ?)", UNEXPECTED)[
        0
    ]["n"]
    command = "query RUN 'select time, worker, action, reason from worker_events'"
    if n:
        text = f"{count(n, 'worker')} ended unexpectedly (table worker_events)"
        yield Insight(text, None, f"{count(n, 'row')} of workers", command, grave=True)
    killed = run.rows("select count(*) as n from worker_events where action = 'memory-limit-kill'")[
        0
    ]["n"]
    if killed:
        text = f"{count(killed, 'worker')} killed for using too much memory"
        yield Insight(text, None, count(killed, "memory-limit-kill event"), command, grave=True)


def _repeated(run: Run, spent: Breakdown, path: CriticalPath) -> Iterator[Insight]:
    rows = run.rows("""
        select outcome, count(*) as n, sum(compute_seconds) as seconds from attempts
        where outcome in ('retried', 'lost') group by outcome order by outcome desc
    """)
    text = {"retried": "failed and retried", "lost": "lost with their worker"}
    for row in rows:
        share = (row["seconds"] or 0.0) / spent.total_seconds if spent.total_seconds else 0.0
        known = "not on record" if row["seconds"] is None else f"{row['seconds']:.2f} s"
        yield Insight(
            f"{count(row['n'], 'attempt')} {text[row['outcome']]}",
            share * path.makespan_seconds or None,
            f"{row['n']:,} of {count(len(run['attempts']), 'attempt')}; they computed: {known}",
            'query RUN "select key, worker, exception from attempts '
            f"where outcome = '{row['outcome']}'\"",
            grave=row["outcome"] == "lost",
        )


def _memory(run: Run) -> Iterator[Insight]:
    row = run.rows(
        "select count(*) as n, coalesce(sum(nbytes), 0)::bigint as b, sum(seconds) as s "
        "from spills where action = 'spill'"
    )[0]
    if row["n"]:
        yield Insight(
            f"{count(row['n'], 'result')} ({row['b'] / 2**20:,.0f} MiB) spilled to disk",
            None,
            f"{count(row['n'], 'row')} of spills, {row['s'] or 0:.2f} s of writing",
            "query RUN 'select worker, count(*), sum(nbytes) from spills group by worker'",
        )
    paused = run.rows("select count(*) as n from worker_events where action = 'paused'")[0]["n"]
    if paused:
        yield Insight(
            f"Workers were paused {count(paused, 'time')} for using too much memory",
            None,
            count(paused, "paused event"),
            "query RUN \"select time, worker from worker_events where action = 'paused'\"",
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


def _lag(run: Run) -> Iterator[Insight]:
    row = run.rows(
        "select max(loop_lag_seconds) as lag, sum(loop_lag_seconds) as s from scheduler_samples"
    )[0]
    if row["lag"] and row["lag"] > 1:
        yield Insight(
            f"The scheduler's event loop was blocked for up to {row['lag']:.1f} s",
            row["lag"],
            f"{row['s']:.1f} s of lag in all samples together",
            "query RUN 'select time, loop_lag_seconds from scheduler_samples order by 2 desc'",
        )
