"""The first screen: what ran, how long, where the time went, what stands out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.breakdown import Breakdown, PrefixUse, breakdown, prefixes
from dask_strata.analysis.check.check import Check, check
from dask_strata.analysis.critical_path.walk import CriticalPath, critical_path
from dask_strata.analysis.idleness import idle_workers
from dask_strata.analysis.insights import Insight, insights
from dask_strata.analysis.io import Io, summarize_io
from dask_strata.analysis.profile import ProfileSummary, summarize_profile

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
    findings: tuple[Insight, ...]
    path_seconds: dict[str, float]
    makespan_seconds: float
    check: Check
    profile: ProfileSummary | None
    recorder_cpu_seconds: float
    process_cpu_seconds: float
    exit_status: int | None
    segment_bytes: int = 0
    io: Io | None = None

    @property
    def overhead(self) -> float | None:
        """CPU time of the recorder's threads as a part of that of the processes, 0 to 1."""
        if not self.process_cpu_seconds:
            return None
        return self.recorder_cpu_seconds / self.process_cpu_seconds


def summarize(run: Run, path: CriticalPath | None = None) -> Summary:
    """Return what the first screen shows; who knows the critical path hands it in."""
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
    path = critical_path(run) if path is None else path
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
        findings=insights(run, spent, used, path, idle_workers(run)),
        path_seconds=path.seconds,
        makespan_seconds=path.makespan_seconds,
        check=check(run),
        profile=summarize_profile(run),
        recorder_cpu_seconds=float(cost["own"]),
        process_cpu_seconds=float(cost["whole"]),
        exit_status=_exit_status(run),
        segment_bytes=run.segment_bytes,
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
        left join _known k on k._key = t._key
        where t.finish_state = 'erred' and t.exception is not null
          and (t.blame is null or t._blame = t._key)
        group by 1, 2 order by count desc, prefix, exception
    """)
    return tuple(Failure(**row) for row in rows)
