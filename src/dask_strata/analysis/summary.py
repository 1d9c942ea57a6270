"""The summary of a run, which is the first screen: tasks, times, input and output, insights."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.breakdown import Breakdown, PrefixUse, breakdown, prefixes
from dask_strata.analysis.check.check import Check, check
from dask_strata.analysis.critical_path.walk import CriticalPath, critical_path
from dask_strata.analysis.diagnosis import Insight, diagnose
from dask_strata.analysis.failures import Failure, failures
from dask_strata.analysis.io import Io, summarize_io
from dask_strata.analysis.jobs import AbsentWorkers, Jobs, absent_workers, summarize_jobs
from dask_strata.analysis.measured.memory import WorkersMemory, workers_memory
from dask_strata.analysis.measured.scaling import Scaling, summarize_scaling
from dask_strata.analysis.measured.spans import SpanUse, spans
from dask_strata.analysis.outcome import exit_status_of, outcome_of
from dask_strata.analysis.profile import ProfileSummary, summarize_profile
from dask_strata.analysis.series.thread_states import ThreadStates, thread_states
from dask_strata.analysis.timeline.traffic import Moved, moved
from dask_strata.run.clients import clients

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class InputOutput:
    """Bytes that workers read from files and wrote to them; None if the kernel has no counts.

    Unattributed bytes belong to no thread of a task and to no library that counts its reads.
    """

    task_read_bytes: int | None
    task_write_bytes: int | None
    library_read_bytes: int | None
    other_read_bytes: int | None
    other_write_bytes: int | None
    unattributed_read_bytes: int | None
    unattributed_write_bytes: int | None


@dataclass(frozen=True)
class Analysed:
    """The part of a run that grows that its times and insights are about.

    Attributes
    ----------
    start : datetime or None
        First moment of the run.
    duration_seconds : float
        Seconds from there to the last moment of this part.
    n_tasks : int
        Number of its tasks.
    """

    start: datetime | None
    duration_seconds: float
    n_tasks: int


@dataclass(frozen=True)
class Summary:
    """The content of the first screen. Times are in UTC, durations in seconds."""

    name: str
    run_id: str
    path: str
    #: State of the record: complete, cut, recording or imported.
    state: str
    #: How the run ended in one word, see `OUTCOMES`.
    outcome: str
    #: File name of the script, as `dask-strata record` ran it; None otherwise.
    script: str | None
    start: datetime | None
    duration_seconds: float
    active_seconds: float | None
    n_tasks: int
    n_finished_before: int
    n_erred: int | None
    n_unfinished: int | None
    n_submissions: int
    #: Most workers, and most threads, that were connected at once.
    n_workers: int
    n_threads: int | None
    #: Workers beyond these: they replaced others, or came after others had left.
    n_replaced: int
    n_hosts: int
    breakdown: Breakdown
    prefixes: tuple[PrefixUse, ...]
    files: InputOutput
    moved: Moved
    failures: tuple[Failure, ...]
    insights: tuple[Insight, ...]
    path_seconds: dict[str, float]
    makespan_seconds: float
    check: Check
    profile: ProfileSummary | None
    recorder_cpu_seconds: float
    process_cpu_seconds: float
    exit_status: int | None
    segment_bytes: int = 0
    io: Io | None = None
    jobs: Jobs | None = None
    absent_workers: tuple[AbsentWorkers, ...] = ()
    #: Name of the client whose tasks alone the run shows; None if it has those of all clients.
    client: str | None = None
    #: Id of the client that the reader selected; the run itself may have those of all clients.
    selected_client: str | None = None
    #: The part of the run that times and insights are about; None if that is the whole.
    analysed: Analysed | None = None
    #: Spans that the user named, each before those within it: those with the most compute time.
    spans: tuple[SpanUse, ...] = ()
    scaling: Scaling | None = None
    memory: WorkersMemory | None = None

    @property
    def overhead(self) -> float | None:
        """CPU time of the recorder's threads as a share of that of the processes, 0 to 1."""
        if not self.process_cpu_seconds:
            return None
        return self.recorder_cpu_seconds / self.process_cpu_seconds


def summarize(
    run: Run, path: CriticalPath | None = None, states: ThreadStates | None = None
) -> Summary:
    """Return the summary of a run.

    Parameters
    ----------
    run : Run
        The run.
    path : CriticalPath, optional
        Its critical path, if it is already computed.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.
    """
    path = critical_path(run) if path is None else path
    states = thread_states(run) if states is None else states
    used = prefixes(run)
    return Summary(
        **_facts(run),
        breakdown=breakdown(run, states),
        prefixes=used,
        files=input_output(run),
        moved=moved(run),
        insights=diagnose(run, path, states),
        path_seconds=path.seconds,
        makespan_seconds=path.makespan_seconds,
        profile=summarize_profile(run),
        io=summarize_io(run, files=False),
        jobs=summarize_jobs(run),
        spans=spans(run),
        scaling=summarize_scaling(run),
        memory=workers_memory(run),
    )


def summarize_further(run: Run, earlier: Summary) -> Summary:
    """Return a summary of a run that grows: facts of now, times and insights of an earlier one.

    Parameters
    ----------
    run : Run
        The run.
    earlier : Summary
        Its summary a little earlier.
    """
    facts = _facts(run)
    moment = earlier.analysed
    if moment is None:
        moment = Analysed(earlier.start, earlier.duration_seconds, earlier.n_tasks)
    return replace(earlier, **facts, analysed=moment)


def _facts(run: Run) -> dict[str, Any]:
    """Return the fields of a summary that are computed fast, also of a large run."""
    state = run.state  # first: it reads the record anew if the recording has ended
    facts = run.rows("select * from _bounds")[0]
    counts = run.rows("""
        select count(*) as n, count(state) > 0 or count(*) = 0 as known,
               case when known then count(*) filter (state = 'erred') end as erred,
               (select count(*) from tasks where finished_before) as before,
               case when known then count(*) filter (
                   finished is null and state not in ('memory', 'erred')) end as unfinished,
               (max(epoch_ns(case when state in ('processing', 'waiting', 'queued',
                                                          'no-worker') then last
                                           else coalesce(finished, _since, started) end))
                         - min(epoch_ns(coalesce(_since, started)))) / 1e9 as active
        from tasks cross join _bounds where not finished_before
    """)[0]
    workers = run.rows("""
        select count(*) as n, sum(nthreads)::bigint as threads, count(distinct host) as hosts,
               (select max(n_workers) from cluster_sizes) as most,
               (select max(n_threads) from cluster_sizes) as most_threads from workers
    """)[0]
    most = workers["most"] or workers["n"]  # imported runs have no times of workers
    exit_status = exit_status_of(run)
    cost = run.rows("""
        select coalesce(sum(own), 0) as own, coalesce(sum(whole), 0) as whole from (
            select max(cpu_seconds) as own, max(process_cpu_seconds) as whole
            from overheads join processes using (process)
            where role in ('scheduler', 'worker') group by process
        )
    """)[0]
    return {
        "name": run.name,
        "run_id": run.manifest.run_id,
        "path": run.location,
        "state": state,
        "outcome": outcome_of(state, exit_status),
        "script": PurePath(run.script["path"]).name if run.script.get("path") else None,
        "start": facts["first"],
        "duration_seconds": facts["seconds"] or 0.0,
        "active_seconds": counts["active"],
        "n_tasks": counts["n"],
        "n_finished_before": counts["before"],
        "n_erred": counts["erred"],
        "n_unfinished": counts["unfinished"],
        "n_submissions": len(run["submissions"]),
        "n_workers": most,
        "n_threads": workers["most_threads"] or workers["threads"],
        "n_replaced": workers["n"] - most,
        "n_hosts": workers["hosts"],
        "failures": failures(run),
        "check": check(run),
        "recorder_cpu_seconds": float(cost["own"]),
        "process_cpu_seconds": float(cost["whole"]),
        "exit_status": exit_status,
        "segment_bytes": run.segment_bytes,
        "absent_workers": absent_workers(run),
        "client": _client(run),
        "selected_client": run.client,
    }


def _client(run: Run) -> str | None:
    only = run.client or run.manifest.only_client
    return next((c.name for c in clients(run) if c.client == only), only)


def input_output(run: Run) -> InputOutput:
    """Return the bytes that all workers read and wrote.

    Parameters
    ----------
    run : Run
        The run.
    """
    names = tuple(field.name for field in fields(InputOutput))
    sums = ", ".join(f"sum({name})::bigint as {name}" for name in names)
    where = "process is not null and task_read_bytes is not null"
    return InputOutput(**run.rows(f"select {sums} from process_io where {where}")[0])  # noqa: S608  names of fields
