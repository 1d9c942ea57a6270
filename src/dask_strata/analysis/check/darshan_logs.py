"""Findings about the Darshan logs that were imported into a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.words import count, duration, percent
from dask_strata.schema.values import DASK_ROLES, LOST_COUNTERS, MATCH_TOLERANCE_NS

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Least share of a log's operations that fit into executions, and largest shift of its clock in
#: seconds, with which the attribution of the operations to tasks is trusted.
_LEAST_FIT = 0.7
_LARGEST_SHIFT = 1.0


def check_logs(run: Run) -> Iterator[Finding]:
    """Yield findings about Darshan's logs; none if the run has no log.

    Parameters
    ----------
    run : Run
        The run.
    """
    if not len(run["darshan_logs"]):
        return
    yield from _matched(run)
    yield from _partial(run)
    yield from _without_counters(run)
    yield from _clocks(run)
    yield from _without_log(run)


#: Numbers of logs that were matched to processes of the run (column ``tied_by``), and of the others
#: those that overlap with the run's time, by the same rule as on import.
_MATCHED = """
    with times as (
        select start as t from processes where list_contains(?, role)
        union all select stop from processes where list_contains(?, role)
        union all select time from scheduler_transitions
        union all select time from worker_transitions
        union all select start from executions union all select stop from executions
    ), span as (select min(epoch_ns(t)) as first, max(epoch_ns(t)) as last from times),
    logs as (
        select program, nprocs, tied_by is not null as matched,
               tied_by is null and coalesce(
                   least(epoch_ns(stop), last) - greatest(epoch_ns(start), first) + ? > 0, true
               ) as at_the_time
        from darshan_logs, span
    )
    select count(*) filter (matched) as matched, count(*) filter (at_the_time) as at_the_time,
           count(*) filter (not matched and not at_the_time) as other_times,
           count(*) filter (not matched and nprocs > 1) as shared,
           string_agg(distinct program, ', ' order by program) filter (at_the_time) as programs
    from logs
"""


def _matched(run: Run) -> Iterator[Finding]:
    row = run.rows(_MATCHED, list(DASK_ROLES), list(DASK_ROLES), MATCH_TOLERANCE_NS)[0]
    text = f"{count(row['matched'], 'log')} of processes of the run"
    if row["at_the_time"]:
        text += f", {row['at_the_time']:,} of other programs at the time: {row['programs']}"
    if row["other_times"]:
        text += f", {row['other_times']:,} of other programs at other times"
    yield Finding("note", "darshan", text)
    if row["shared"]:
        yield Finding(
            "note",
            "darshan",
            f"{count(row['shared'], 'log')} not matched, because of several processes (MPI)",
        )


def _partial(run: Run) -> Iterator[Finding]:
    for row in run.rows(
        "select coalesce(process, program) as owner, file, partial from darshan_logs "
        "where partial is not null order by tied_by is null, file"
    ):
        yield Finding(
            "note",
            row["owner"],
            f"Darshan had no memory left for some records of {row['partial']} in {row['file']}: "
            "increase MODMEM and MAX_RECORDS in Darshan's configuration",
        )


def _without_counters(run: Run) -> Iterator[Finding]:
    row = run.rows(
        """
        select count(*) as n from darshan_logs l
        where l.log not in (select log from darshan_counters where log is not null)
          and exists (from losses where what = ?)
        """,
        LOST_COUNTERS,
    )[0]
    if row["n"]:
        yield Finding(
            "missing",
            "darshan",
            f"{count(row['n'], 'log')} without counters, because PyDarshan was not installed on "
            "import: pip install 'dask-strata[darshan]', then import again",
        )


def _clocks(run: Run) -> Iterator[Finding]:
    for row in run.rows("""
        select coalesce(process, worker) as owner, file, clock_shift_seconds as shift,
               clock_uncertainty_seconds as uncertainty, clock_fit as fit
        from darshan_logs where tied_by is not null and n_segments > 0 order by file
    """):
        if row["shift"] is None:
            continue
        if row["fit"] < _LEAST_FIT or abs(row["shift"]) > _LARGEST_SHIFT:
            yield Finding(
                "note",
                row["owner"],
                f"attribution is doubtful: with the clock of {row['file']} shifted by "
                f"{duration(row['shift'])}, {percent(row['fit'])} of the operations are in "
                "executions",
            )


def _without_log(run: Run) -> Iterator[Finding]:
    """Find workers without a log where others have one: Darshan writes it on a normal exit."""
    rows = run.rows("""
        with tied as (select distinct process, worker from darshan_logs where tied_by is not null)
        select w.worker, w.process, w.end_reason, p.exit_reason
        from workers w left join processes p on p.process = w.process
        where exists (from tied t join workers o on o.worker = t.worker)
          and not exists (from tied t where t.process = w.process)
          and not exists (from tied t where t.process is null and t.worker = w.worker)
          and not exists (
              from tied t join processes q on q.process = t.process
              where q.pid = p.pid and q.host is not distinct from p.host)
        order by w.worker
    """)
    for row in rows:
        why = row["end_reason"] or row["exit_reason"]
        end = f"it ended with: {why}" if why else "the reason of its end is unknown"
        yield Finding(
            "missing",
            row["process"] or row["worker"],
            f"worker {row['worker']} has no Darshan log, but other workers have one; {end}",
        )
