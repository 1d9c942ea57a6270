"""What is known to be missing of Darshan's logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_strata.analysis.check.finding import Finding
from dask_strata.analysis.words import count
from dask_strata.schema.values import DASK_ROLES, LOST_COUNTERS, MATCH_TOLERANCE_NS

if TYPE_CHECKING:
    from dask_strata.run import Run

#: A log of which fewer operations fit into runs of tasks has a doubtful clock.
_DOUBTFUL_FIT = 0.7
_MANY_SECONDS = 1.0


def check_logs(run: Run) -> Iterator[Finding]:
    """Yield what there is to say about Darshan's logs, if there are any in the run."""
    if not len(run["darshan_logs"]):
        return
    yield from _tied(run)
    yield from _partial(run)
    yield from _without_counters(run)
    yield from _clocks(run)
    yield from _without_log(run)


#: Logs that are tied; and of the others those of the run's time, as importing looks at it.
_TIED = """
    with times as (
        select start as t from processes where list_contains(?, role)
        union all select stop from processes where list_contains(?, role)
        union all select time from scheduler_transitions
        union all select time from worker_transitions
        union all select start from executions union all select stop from executions
    ), span as (select min(epoch_ns(t)) as first, max(epoch_ns(t)) as last from times),
    logs as (
        select program, nprocs, tied_by is not null as tied,
               tied_by is null and coalesce(
                   least(epoch_ns(stop), last) - greatest(epoch_ns(start), first) + ? > 0, true
               ) as meanwhile
        from darshan_logs, span
    )
    select count(*) filter (tied) as tied, count(*) filter (meanwhile) as meanwhile,
           count(*) filter (not tied and not meanwhile) as elsewhen,
           count(*) filter (not tied and nprocs > 1) as shared,
           string_agg(distinct program, ', ' order by program) filter (meanwhile) as programs
    from logs
"""


def _tied(run: Run) -> Iterator[Finding]:
    row = run.rows(_TIED, list(DASK_ROLES), list(DASK_ROLES), MATCH_TOLERANCE_NS)[0]
    said = f"{count(row['tied'], 'log')} of processes of the run"
    if row["meanwhile"]:
        said += f", {row['meanwhile']:,} of other programs meanwhile: {row['programs']}"
    if row["elsewhen"]:
        said += f", {row['elsewhen']:,} of no process of the run, nor of its time"
    yield Finding("note", "darshan", said)
    if row["shared"]:
        yield Finding(
            "note", "darshan", f"{count(row['shared'], 'log')} of several processes (MPI): not tied"
        )


def _partial(run: Run) -> Iterator[Finding]:
    for row in run.rows(
        "select coalesce(process, program) as who, file, partial from darshan_logs "
        "where partial is not null order by tied_by is null, file"
    ):
        yield Finding(
            "note",
            row["who"],
            f"Darshan had no room for all records of {row['partial']} in {row['file']}: "
            "more by MODMEM and MAX_RECORDS in its configuration",
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
            f"{count(row['n'], 'log')} without counters: PyDarshan was not installed when they "
            "were imported (pip install 'dask-strata[darshan]', then import them again)",
        )


def _clocks(run: Run) -> Iterator[Finding]:
    for row in run.rows("""
        select coalesce(process, worker) as who, file, clock_shift_seconds as shift,
               clock_uncertainty_seconds as uncertainty, clock_fit as fit
        from darshan_logs where tied_by is not null and n_segments > 0 order by file
    """):
        if row["shift"] is None:
            continue
        if row["fit"] < _DOUBTFUL_FIT or abs(row["shift"]) > _MANY_SECONDS:
            yield Finding(
                "note",
                row["who"],
                f"the clock of {row['file']} was shifted by {row['shift']:.3g} s, which puts "
                f"{row['fit']:.0%} of the operations into runs of tasks: attribution is doubtful",
            )


def _without_log(run: Run) -> Iterator[Finding]:
    """Find workers that have no log though others have: Darshan writes it at a regular end."""
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
        said = f"it ended so: {why}" if why else "how it ended is not on record"
        yield Finding(
            "missing",
            row["process"] or row["worker"],
            f"worker {row['worker']} has no log of Darshan's though others have one; {said}",
        )
