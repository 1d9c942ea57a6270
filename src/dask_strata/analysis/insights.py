"""What stands out, in sentences, with the seconds that it cost and how to see it.

Costs are seconds of the run's makespan, so that they can be compared: of what is measured
in worker-seconds, the seconds that all threads together would need for it. Losses of
workers have none, and come first: they are wrong at any price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.idleness import REASONS, IdleWorker
from dask_strata.analysis.words import count

if TYPE_CHECKING:
    from dask_strata.analysis.breakdown import Breakdown, PrefixUse
    from dask_strata.analysis.critical_path.walk import CriticalPath
    from dask_strata.run import Run


@dataclass(frozen=True)
class Insight:
    """One thing that stands out.

    Attributes
    ----------
    text : str
        The sentence.
    seconds : float or None
        What it cost, in seconds of the makespan; null where nobody can say.
    evidence : str
        The numbers behind it.
    command : str
        What shows it, behind ``dask-strata`` and with RUN for the run.
    grave : bool
        Whether it is wrong at any price.
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
        """How much longer than the median."""
        return self.seconds - self.median_seconds


def stragglers(run: Run) -> tuple[Straggler, ...]:
    """Return attempts that took more than five times the median of their prefix, and a second."""
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
    """Return what stands out: what is wrong first, then by the seconds it cost."""
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


#: How a sentence about a cause on the critical path goes on.
_SAID = {
    "compute": "was computing: only faster tasks, or shorter chains of them, would have helped",
    "transfer": "was fetching data from other workers",
    "deserialize": "was unpacking the definitions of tasks",
    "I/O": "was opening files",
    "spill": "was spilling results to disk, or reading them back",
    "waiting for a worker": "was waiting for a worker: all threads were busy, or none was there",
    "scheduler": "passed between tasks: decisions, messages, blocked event loops (imports)",
    "client": "was waiting for the client, while the cluster had other work",
    "nothing submitted": "had nothing submitted: the client did something else",
}


def _path(path: CriticalPath) -> Iterator[Insight]:
    for cause, seconds in path.seconds.items():
        if path.share(cause) > 0.05 and cause in _SAID:  # noqa: PLR2004
            yield Insight(
                f"{path.share(cause):.0%} of the critical path {_SAID[cause]}",
                seconds,
                f"{seconds:.2f} s of {path.makespan_seconds:.2f} s from the first submission to the "
                f"last result, a path through {count(path.tasks, 'task')}",
                "show RUN",
            )


def _idle(spent: Breakdown, idle: tuple[IdleWorker, ...], path: CriticalPath) -> Iterator[Insight]:
    if not spent.total_seconds or spent.share("idle") <= 0.5:  # noqa: PLR2004
        return
    by_reason = {r: sum(w.seconds[r] for w in idle) for r in REASONS}
    why = max(by_reason, key=lambda r: by_reason[r])
    while_tasks = sum(s for r, s in by_reason.items() if r != "nothing submitted")
    text = f"{spent.share('idle'):.0%} of worker time was idle, time without any task included"
    parts = ", ".join(f"{r} {s:.1f} s" for r, s in by_reason.items())
    yield Insight(
        f"{text}; mostly: {why}, {by_reason[why]:.1f} worker-seconds" if by_reason[why] else text,
        while_tasks / spent.total_seconds * path.makespan_seconds,
        f"{spent.seconds['idle']:.1f} of {spent.total_seconds:.1f} worker-seconds: {parts}",
        "show RUN",
    )


def _transfers(spent: Breakdown, path: CriticalPath) -> Iterator[Insight]:
    if spent.share("transfer") > 0.2:  # noqa: PLR2004
        yield Insight(
            f"{spent.share('transfer'):.0%} of worker time went into waiting for transfers",
            spent.share("transfer") * path.makespan_seconds,
            f"{spent.seconds['transfer']:.1f} of {spent.total_seconds:.1f} worker-seconds",
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
        mine = [s for s in late if s.prefix == prefix.prefix]
        if mine:
            worst = mine[0]
            yield Insight(
                f"one {worst.prefix} took {worst.seconds:.1f} s, "
                f"{worst.seconds / worst.median_seconds:.0f} times the median",
                min(worst.excess_seconds, on_path.get(worst.key, 0.0)),
                f"{count(len(mine), 'attempt')} of {prefix.n_attempts:,} took more than five times "
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
            f"worker {row['name']} computed {row['most'] / row['mean']:.1f} times the average",
            (row["most"] - row["mean"]) / row["threads"],
            f"{row['most']:.1f} s of compute, {row['mean']:.1f} s on average of "
            f"{count(row['n'], 'worker')}",
            "query RUN 'select name, worker, n_attempts, compute_seconds from workers'",
        )


def _lost_workers(run: Run) -> Iterator[Insight]:
    n = run.rows("select count(*) as n from workers where end_reason like 'unexpected%'")[0]["n"]
    command = "query RUN 'select time, worker, action, reason from worker_events'"
    if n:
        text = f"{count(n, 'worker')} ended unexpectedly (table worker_events)"
        yield Insight(text, None, f"{n} of the rows of workers", command, grave=True)
    killed = run.rows("select count(*) as n from worker_events where action = 'memory-limit-kill'")[
        0
    ]["n"]
    if killed:
        text = f"{count(killed, 'worker')} were killed for their memory"
        yield Insight(text, None, f"{killed} memory-limit-kill events", command, grave=True)


def _repeated(run: Run, spent: Breakdown, path: CriticalPath) -> Iterator[Insight]:
    rows = run.rows("""
        select outcome, count(*) as n, sum(compute_seconds) as seconds from attempts
        where outcome in ('retried', 'lost') group by outcome order by outcome desc
    """)
    text = {"retried": "failed and tried again", "lost": "lost with their worker"}
    for row in rows:
        share = (row["seconds"] or 0.0) / spent.total_seconds if spent.total_seconds else 0.0
        known = "not on record" if row["seconds"] is None else f"{row['seconds']:.2f} s"
        yield Insight(
            f"{count(row['n'], 'attempt')} {text[row['outcome']]}",
            share * path.makespan_seconds or None,
            f"{row['n']:,} of {count(len(run['attempts']), 'attempt')}, compute in them: {known}",
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
            f"{row['n']} results ({row['b'] / 2**20:,.0f} MiB) were spilled to disk",
            None,
            f"{row['n']:,} rows of spills, {row['s'] or 0:.2f} s of writing",
            "query RUN 'select worker, count(*), sum(nbytes) from spills group by worker'",
        )
    paused = run.rows("select count(*) as n from worker_events where action = 'paused'")[0]["n"]
    if paused:
        yield Insight(
            f"workers were paused for their memory {count(paused, 'time')}",
            None,
            f"{paused} paused events",
            "query RUN \"select time, worker from worker_events where action = 'paused'\"",
        )


def _versions(run: Run) -> Iterator[Insight]:
    for row in run.rows(
        "select name, count(distinct version) as n from package_mismatches group by name "
        "order by name limit 3"
    ):
        yield Insight(
            f"{row['name']} has not the same version in all processes (table package_mismatches)",
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
            f"the scheduler's event loop was blocked for up to {row['lag']:.1f} s",
            row["lag"],
            f"{row['s']:.1f} s late in all samples together",
            "query RUN 'select time, loop_lag_seconds from scheduler_samples order by 2 desc'",
        )
