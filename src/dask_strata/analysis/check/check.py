"""Completeness of the record: Dask's own counters against the rows, damage, gaps and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.check.cuts import Cut, judge_cuts
from dask_strata.analysis.check.darshan_logs import check_logs
from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.check.fine_metrics import check_fine_metrics
from dask_strata.analysis.check.imports import check_import
from dask_strata.analysis.check.unwritten_logs import unwritten_logs
from dask_strata.analysis.words import count
from dask_strata.schema.values import (
    BEYOND_BOUND,
    INTERRUPTED_UPLOAD,
    LOST_COUNTERS,
    LOST_FRAME,
    LOST_FRAME_IN_0_1,
    LOST_SEGMENT,
    LOST_WORKER,
)
from dask_strata.store.manifest import PROFILE_FORMS, PROFILES
from dask_strata.store.reader import UNUSABLE_VALUES
from dask_strata.store.safe_files import entries
from dask_strata.store.segments.read import segment_state

if TYPE_CHECKING:
    from dask_strata.run import Run


#: Grades of a record: nothing is missing; a process was cut off, but each attempt that the
#: scheduler knows is complete; something is missing.
WHOLE, WHOLE_FOR_TASKS, MISSING = "whole", "whole for every task", "missing"


@dataclass(frozen=True)
class Check:
    """The outcome of a check.

    Attributes
    ----------
    findings : tuple of Finding
        All findings, also of complete parts.
    n_processes : dict of str to int
        Number of processes on record, by role.
    """

    findings: tuple[Finding, ...]
    n_processes: dict[str, int] = field(default_factory=dict)

    @property
    def grade(self) -> str:
        """How complete the record is: ``whole``, ``whole for every task`` or ``missing``."""
        severities = {finding.severity for finding in self.findings}
        if "missing" in severities:
            return MISSING
        return WHOLE_FOR_TASKS if "cut" in severities else WHOLE

    @property
    def ok(self) -> bool:
        """Whether the record of each task is complete; see `grade`."""
        return self.grade != MISSING

    @property
    def missing(self) -> tuple[Finding, ...]:
        """Findings of missing parts."""
        return tuple(f for f in self.findings if f.severity == "missing")

    @property
    def cut(self) -> tuple[Finding, ...]:
        """Findings of processes that were cut off, while each of their tasks is complete."""
        return tuple(f for f in self.findings if f.severity == "cut")

    @property
    def incomplete(self) -> tuple[Finding, ...]:
        """Findings of missing parts and of processes that were cut off."""
        return tuple(f for f in self.findings if f.severity in {"cut", "missing"})

    @property
    def sentence(self) -> str:
        """The outcome in one sentence, for the first screen."""
        if self.grade == WHOLE:
            processes = {f.process for f in self.findings if f.counted}
            if not processes:
                return "no loss is known"
            return f"event counts match Dask's own on {_processes(processes, self.n_processes)}"
        first, *others = self.missing or self.cut
        return f"{first.process}: {first.text}" + (f" (and {len(others)} more)" if others else "")


_PAIR = 2


def _roles(ids: Iterable[str]) -> Counter[str]:
    return Counter(process.partition("-")[0] for process in ids)


def _processes(ids: Collection[str], n_processes: Mapping[str, int]) -> str:
    """Return processes by role: the scheduler and both workers."""
    parts = []
    for role, n in sorted(_roles(ids).items()):
        total = n_processes.get(role, n)
        several = f"both {role}s" if n == _PAIR else f"all {n:,} {role}s"
        if n < total:
            several = f"{n:,} of {total:,} {role}s"
        parts.append(f"the {role}" if total == 1 else several)
    return " and ".join(parts)


def check(run: Run) -> Check:
    """Compare the record with Dask's own counters, and find all missing parts.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    Check
    """
    findings = (
        [*check_import(run), *_losses(run)]
        if run.record.imported
        else [
            *_counters(run),
            *_segments(run),
            *_removed(run),
            *_losses(run),
            *_unrecorded_workers(run),
            *_versions(run),
            *_left_out(run),
            *_unmeasured(run),
            *_profiles(run),
            *unwritten_logs(run),
            *check_fine_metrics(run),
        ]
    )
    findings += list(check_logs(run))
    findings += [  # last, as reading a table is what finds its unusable values
        Finding("missing", "reader", f"{n:,} {name}: {UNUSABLE_VALUES}")
        for name, n in run.record.unusable.items()
        if n
    ]
    findings += [
        Finding("missing", "reader", f"{run.record.rows[name]:,} {name}: {why}")
        for name, why in run.record.failed.items()
    ]
    findings += [
        Finding("missing", "reader", f"{name}, which is computed again instead: {why}")
        for name, why in run.record.tables.damaged_derived().items()
    ]
    return Check(
        tuple(findings),
        dict(_roles(segment.process for segment in run.segments)),
    )


_TABLE = {
    "scheduler.transitions": "scheduler_transitions",
    "worker.transitions": "worker_transitions",
}


def _counters(run: Run) -> Iterator[Finding]:
    for name, table in _TABLE.items():
        rows = run.rows(
            """
            select process, arg_max(value, seq) as value, arg_max(final, seq) as final,
                   max(time) as time
            from counters where name = ? group by process order by process
            """,
            name,
        )
        n_rows = run.rows_by_process(table) if rows else {}
        left_out = run.rows(
            "select process, sum(count)::bigint as n from left_out_rows where what = ? group by 1",
            table,
        )
        n_left_out = {row["process"]: row["n"] for row in left_out}
        for row in rows:
            numbers = (each.get(row["process"], 0) for each in (n_rows, n_left_out))
            yield _compare(name, row, *numbers)


def _compare(name: str, row: dict[str, Any], n_rows: int, n_left_out: int) -> Finding:
    process, value, n = row["process"], row["value"], n_rows + n_left_out
    kind = name.rpartition(".")[2]
    present = f"{n_rows:,} are on record"
    if n_left_out:
        present += f", {n_left_out:,} of other clients' tasks were left out"
    if row["final"] and value == n:
        return Finding("ok", process, f"Dask counted {value:,} {kind}, {present}", counted=True)
    if row["final"]:
        return Finding(
            "missing",
            process,
            f"Dask counted {value:,} {kind}, {present}: "
            + (f"{value - n:,} are missing" if value > n else f"{n - value:,} are too many"),
        )
    if value > n:
        return Finding(
            "missing",
            process,
            f"by {clock(row['time'])} Dask had counted {value:,} {kind}, {present}",
        )
    of_others = f", {n_left_out:,} of other clients' tasks were left out" if n_left_out else ""
    return Finding(
        "ok",
        process,
        f"all {value:,} {kind} that Dask had counted by {clock(row['time'])} are on "
        f"record{of_others}",
        counted=True,
    )


def _segments(run: Run) -> Iterator[Finding]:
    if not any(s.process.startswith("scheduler") for s in run.segments):
        yield Finding("missing", "scheduler", "has no record")
    interval = run.flush_interval_seconds
    last = {
        row["process"]: row["time"]
        for row in run.rows("select process, max(time) as time from overheads group by process")
    }
    states = {segment.process: segment_state(segment) for segment in run.segments}
    judged = _judged(run, states)
    for segment in run.segments:
        state = states[segment.process]
        if state == "recording":
            yield Finding("note", segment.process, "is still being recorded")
        elif state == "cut":
            since = last.get(segment.process)
            when = f" after {clock(since)}" if since else ""
            cut = judged.get(segment.process)
            evidence = "" if cut is None else f"{cut.text}; other "
            yield Finding(
                "cut" if cut is not None and cut.whole else "missing",
                segment.process,
                f"was killed{when}: {evidence}events of its last {interval:g} s may be missing",
            )
            yield from _undescribed(run, segment.process)
        for damage in segment.damages:
            yield Finding(
                "missing", segment.process, f"part of {segment.path.name} is damaged: {damage}"
            )
        if segment.lost_rows:
            yield Finding(
                "missing",
                segment.process,
                f"{segment.lost_rows:,} rows are missing in the middle of {segment.path.name}",
            )


def _judged(run: Run, states: Mapping[str, str]) -> dict[str, Cut]:
    """Return the evidence about cut processes; none if the scheduler was cut, too."""
    scheduler = [state for process, state in states.items() if process.startswith("scheduler")]
    cut = [
        segment.process
        for segment in run.segments
        if states[segment.process] == "cut" and not segment.damages and not segment.lost_rows
    ]
    return judge_cuts(run, cut) if cut and scheduler and "cut" not in scheduler else {}


def _removed(run: Run) -> Iterator[Finding]:
    """Find processes whose segment the scheduler's recorder had found, and that have none now."""
    present = {segment.process for segment in run.segments}
    for row in run.rows(
        "select segment_of as name, min(time) as time from recorded_processes group by 1 order by 1"
    ):
        if row["name"] not in present:
            when = f" at {clock(row['time'])}" if row["time"] else ""
            yield Finding(
                "missing",
                row["name"],
                f"has no record, but had a segment{when}: it was removed or replaced since",
            )


def _undescribed(run: Run, process: str) -> Iterator[Finding]:
    """Find submitted tasks that a process had not yet described when it was killed."""
    [row] = run.rows(
        """
        select (select sum(n_tasks) from submissions where process = $1)::bigint as submitted,
               (select count(*) from graph_tasks
                where process = $1 and submission is not null) as described
        """,
        process,
    )
    missing = (row["submitted"] or 0) - row["described"]
    if missing > 0:
        yield Finding(
            "missing",
            process,
            f"{missing:,} of {row['submitted']:,} submitted tasks are not described: the process "
            "was killed before, as the recorder describes a graph in small portions",
        )


def _losses(run: Run) -> Iterator[Finding]:
    for row in run.rows(
        """
        select process, what, reason, sum(count) as n, min(time) as time from losses
        where not list_contains(?, what) and not (what = ? and reason = ?)
          and not (what = ? and "where" in
                   (select worker from _worker_connections where process is null))
        group by all order by time, process, what, reason
        """,
        # Exclude segments and counters: segments have findings of their own, and the counters of
        # Darshan's logs may have been imported since.
        [LOST_SEGMENT, LOST_FRAME, LOST_COUNTERS],
        *LOST_FRAME_IN_0_1,
        LOST_WORKER,
    ):
        number = "" if row["n"] is None else f"{int(row['n']):,} "
        when = f" since {clock(row['time'])}" if row["time"] else ""
        text = f"{number}{row['what']}: {row['reason']}{when}"
        # An upload is repeated until it succeeds: an interruption alone is no loss.
        # Logs are bounded on purpose: a run whose tasks print much is whole.
        by_design = row["what"] == INTERRUPTED_UPLOAD or (row["reason"] or "").startswith(
            BEYOND_BOUND
        )
        yield Finding("note" if by_design else "missing", row["process"], text)


def _unrecorded_workers(run: Run) -> Iterator[Finding]:
    if not run.rows("select 1 from _worker_connections where process is null limit 1"):
        return  # counting the attempts of each worker, as `workers` does, takes long
    for row in run.rows(
        "select worker, any_value(name) as name, max(n_attempts) as n_attempts, "
        'max(reason) as reason from workers left join losses on "where" = worker '
        "and what = ? where workers.process is null group by worker order by worker",
        LOST_WORKER,
    ):
        why = f"is not recorded: {row['reason']}" if row["reason"] else "has no record of its own"
        # A worker that comes or leaves in a moment may have no record, and no task either.
        idle = row["n_attempts"] == 0 and not row["reason"]
        yield Finding(
            "cut" if idle else "missing",
            "workers",
            f"worker {row['worker']} ({row['name']}) {why}; the scheduler recorded "
            f"{count(row['n_attempts'], 'attempt')} on it",
        )


def _versions(run: Run) -> Iterator[Finding]:
    """Find processes that were recorded by another version of dask-strata than the scheduler."""
    for row in run.rows(
        "select process, dask_strata as other, (select any_value(dask_strata) from processes "
        "where role = 'scheduler') as main from processes where other is distinct from main "
        "and role in ('worker', 'nanny', 'client') "
        "and exists (from processes where role = 'scheduler') order by process"
    ):
        by = f"by dask-strata {row['other']}" if row["other"] else "by an early dask-strata"
        main = row["main"] or "an early one"
        yield Finding("note", row["process"], f"was recorded {by}, the scheduler by {main}")
    for row in run.rows(
        "select process, string_agg(value, ', ' order by value) as names from job "
        "where name = 'dask-strata.unknown-setting' group by process order by process"
    ):
        yield Finding("note", row["process"], f"ignored settings of the scheduler: {row['names']}")


def _left_out(run: Run) -> Iterator[Finding]:
    """Find classes of facts that the settings exclude from the record."""
    names = {
        name
        for row in run.rows("select value from job where name = 'dask-strata.left-out'")
        for name in row["value"].split(", ")
    }
    if names:
        yield Finding("note", "settings", f"left out on purpose: {', '.join(sorted(names))}")


#: Measures that a kernel may lack, with their source, by a column that is null without them.
_MEASURES = {
    "cpu_seconds": "CPU time",
    "minor_faults": "faults and switches (getrusage)",
    "read_bytes": "bytes read and written (/proc/thread-self/io)",
    "rss_after_bytes": "memory (/proc/self/statm)",
}


def _unmeasured(run: Run) -> Iterator[Finding]:
    """Find missing measures of executions; a coroutine has none, as it shares its thread."""
    counts = ", ".join(f"count({column}) as {column}" for column in _MEASURES)
    for row in run.rows(
        f"select process, count(*) as n, {counts} from executions "  # noqa: S608  names of columns
        "where kind <> 'coroutine' group by process order by process"
    ):
        for column, measure in _MEASURES.items():
            missing = row["n"] - row[column]
            if missing:
                yield Finding(
                    "note",
                    row["process"],
                    f"{missing:,} of {count(row['n'], 'execution')} have no {measure}",
                )


def _profiles(run: Run) -> Iterator[Finding]:
    """Find profiles that a process recorded in tables but did not write as files."""
    try:
        present = {name for name, _ in entries(run.path, PROFILES)}
    except OSError:
        present = set()
    for row in run.rows(
        "select distinct process from functions join processes using (process) "
        "where functions.file is null and transport = 'file' and stop is not null order by process"
    ):
        names = [f"{row['process']}.{form}" for form in PROFILE_FORMS]
        absent = [name for name in names if name not in present]
        if absent:
            yield Finding(
                "note",
                row["process"],
                f"wrote no {' and no '.join(absent)} into {PROFILES}, because it ended before or "
                "could not write; its functions are in the table functions",
            )


def clock(time: Any) -> str:
    """Return a time of day in UTC, to the millisecond.

    Parameters
    ----------
    time : datetime or int
        The time; an integer is in ns since the epoch.

    >>> clock(1_500_000_000)
    '00:00:01.500 UTC'
    """
    if isinstance(time, int):
        time = datetime.fromtimestamp(time / 1e9, tz=timezone.utc)
    return f"{time:%H:%M:%S.%f}"[:-3] + " UTC"
