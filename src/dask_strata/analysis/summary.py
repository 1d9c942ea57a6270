"""The first screen: what ran, how long, where the time went, what stands out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.breakdown import Breakdown, PrefixUse, breakdown, prefixes
from dask_strata.analysis.completeness import Check, check
from dask_strata.analysis.io_ import Io, summarize_io

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Failure:
    """Tasks that failed by themselves, with the same exception."""

    prefix: str
    exception: str
    count: int
    example: str


@dataclass(frozen=True)
class InputOutput:
    """Bytes of files that workers read and wrote; null where the kernel does not say.

    Unattributed is what no task's thread did, and no library that counts.
    """

    task_read_bytes: int | None
    task_write_bytes: int | None
    library_read_bytes: int | None
    unattributed_read_bytes: int | None
    unattributed_write_bytes: int | None


@dataclass(frozen=True)
class Summary:
    """What the first screen shows. Times are UTC, durations in seconds."""

    name: str
    run: str
    path: str
    state: str
    start: datetime | None
    duration_seconds: float
    active_seconds: float
    n_tasks: int
    n_erred: int
    n_unfinished: int
    n_submissions: int
    n_workers: int
    n_threads: int
    n_hosts: int
    breakdown: Breakdown
    prefixes: tuple[PrefixUse, ...]
    files: InputOutput
    failures: tuple[Failure, ...]
    findings: tuple[str, ...]
    check: Check
    recorder_cpu_seconds: float
    process_cpu_seconds: float
    exit_status: int | None
    io: Io | None = None

    @property
    def overhead(self) -> float | None:
        """CPU time of the recorder's threads as a part of that of the processes, 0 to 1."""
        if not self.process_cpu_seconds:
            return None
        return self.recorder_cpu_seconds / self.process_cpu_seconds


def summarize(run: Run) -> Summary:
    """Return what the first screen shows."""
    facts = run.rows("select * from _bounds")[0]
    counts = run.rows("""
        select count(*) as n, count(*) filter (state = 'erred') as erred,
               count(*) filter (finished is null and state not in ('memory', 'erred')) as unfinished,
               coalesce((max(epoch_ns(coalesce(finished, submitted, started)))
                         - min(epoch_ns(coalesce(submitted, started)))) / 1e9, 0)
                   as active
        from tasks
    """)[0]
    workers = run.rows("""
        select count(*) as n, coalesce(sum(nthreads), 0)::bigint as threads,
               count(distinct host) as hosts from workers
    """)[0]
    cost = run.rows("""
        select coalesce(sum(own), 0) as own, coalesce(sum(whole), 0) as whole from (
            select max(cpu_seconds) as own, max(process_cpu_seconds) as whole
            from overheads join processes using (process)
            where role in ('scheduler', 'worker') group by process
        )
    """)[0]
    spent, used, failed = breakdown(run), prefixes(run), failures(run)
    return Summary(
        name=run.manifest.name,
        run=run.manifest.run,
        path=str(run.path),
        state=run.state,
        start=facts["first"],
        duration_seconds=facts["seconds"] or 0.0,
        active_seconds=counts["active"],
        n_tasks=counts["n"],
        n_erred=counts["erred"],
        n_unfinished=counts["unfinished"],
        n_submissions=len(run["submissions"]),
        n_workers=workers["n"],
        n_threads=workers["threads"],
        n_hosts=workers["hosts"],
        breakdown=spent,
        prefixes=used,
        files=input_output(run),
        failures=failed,
        findings=tuple(findings(run, spent, used)),
        check=check(run),
        recorder_cpu_seconds=float(cost["own"]),
        process_cpu_seconds=float(cost["whole"]),
        exit_status=_exit_status(run),
        io=summarize_io(run, files=False),
    )


def _exit_status(run: Run) -> int | None:
    """Return the script's exit status, where `dask-strata record` ran it."""
    status = run.script.get("exit_status", "")
    return int(status) if status.isdecimal() else None


def input_output(run: Run) -> InputOutput:
    """Return what the processes of workers read and wrote, together."""
    names = tuple(field.name for field in fields(InputOutput))
    sums = ", ".join(f"sum({name})::bigint as {name}" for name in names)
    where = "process is not null and task_read_bytes is not null"
    return InputOutput(**run.rows(f"select {sums} from process_io where {where}")[0])  # noqa: S608  our own names


def failures(run: Run) -> tuple[Failure, ...]:
    """Return the exceptions of tasks that failed by themselves, the most frequent first."""
    rows = run.rows("""
        select coalesce(k.prefix, '(unknown)') as prefix, t.exception, count(distinct t.key) as count,
               any_value(t.key) as example
        from scheduler_transitions t
        left join _known k on k.key = t.key and k.key_type = t.key_type
        where t.finish_state = 'erred' and t.exception is not null
          and (t.blame is null or t.blame = t.key and t.blame_type = t.key_type)
        group by 1, 2 order by count desc, prefix, exception
    """)
    return tuple(Failure(**row) for row in rows)


def findings(run: Run, spent: Breakdown, used: tuple[PrefixUse, ...]) -> Iterator[str]:
    """Yield what stands out, in sentences, the gravest first."""
    yield from _lost_workers(run)
    yield from _repeated(run)
    if spent.total_seconds and spent.share("idle") > 0.5:  # noqa: PLR2004
        yield (f"{spent.share('idle'):.0%} of worker time was idle, time without any task included")
    if spent.share("transfer") > 0.2:  # noqa: PLR2004
        yield f"{spent.share('transfer'):.0%} of worker time went into waiting for transfers"
    yield from _stragglers(used)
    yield from _imbalance(run)
    yield from _memory(run)
    for row in run.rows(
        "select name, count(distinct version) as n from package_mismatches group by name order by name limit 3"
    ):
        yield f"{row['name']} has not the same version in all processes (table package_mismatches)"
    lag = run.rows("select max(loop_lag_seconds) as lag from scheduler_samples")[0]["lag"]
    if lag and lag > 1:
        yield f"the scheduler's event loop was blocked for up to {lag:.1f} s"


def _lost_workers(run: Run) -> Iterator[str]:
    row = run.rows("select count(*) as n from workers where end_reason like 'unexpected%'")[0]
    if row["n"]:
        yield f"{row['n']} worker{_s(row['n'])} ended unexpectedly (table worker_events)"
    killed = run.rows("select count(*) as n from worker_events where action = 'memory-limit-kill'")[
        0
    ]
    if killed["n"]:
        yield f"{killed['n']} worker{_s(killed['n'])} were killed for their memory"


def _repeated(run: Run) -> Iterator[str]:
    row = run.rows("""
        select count(*) filter (outcome = 'retried') as retried,
               count(*) filter (outcome = 'lost') as lost from attempts
    """)[0]
    if row["retried"]:
        yield f"{row['retried']} attempt{_s(row['retried'])} failed and were retried"
    if row["lost"]:
        yield f"{row['lost']} attempt{_s(row['lost'])} were lost with their worker"


def _stragglers(used: tuple[PrefixUse, ...]) -> Iterator[str]:
    for prefix in used[:5]:
        median, longest = prefix.median_seconds, prefix.max_seconds
        if median and longest and prefix.n_attempts > 3 and longest > 1 and longest > 5 * median:  # noqa: PLR2004
            yield (
                f"one {prefix.prefix} took {longest:.1f} s, {longest / median:.0f} times the median"
            )


def _imbalance(run: Run) -> Iterator[str]:
    row = run.rows("""
        select count(*) as n, max(compute_seconds) as most, avg(coalesce(compute_seconds, 0)) as mean,
               arg_max(coalesce(name, worker), compute_seconds) as name from workers
    """)[0]
    if row["n"] > 1 and row["mean"] and row["most"] > 1 and row["most"] > 1.5 * row["mean"]:
        yield f"worker {row['name']} computed {row['most'] / row['mean']:.1f} times the average"


def _memory(run: Run) -> Iterator[str]:
    row = run.rows(
        "select count(*) as n, coalesce(sum(nbytes), 0)::bigint as b from spills where action = 'spill'"
    )[0]
    if row["n"]:
        yield f"{row['n']} results ({row['b'] / 2**20:,.0f} MiB) were spilled to disk"
    paused = run.rows("select count(*) as n from worker_events where action = 'paused'")[0]["n"]
    if paused:
        yield f"workers were paused for their memory {paused} time{_s(paused)}"


def _s(n: int) -> str:
    return "" if n == 1 else "s"
