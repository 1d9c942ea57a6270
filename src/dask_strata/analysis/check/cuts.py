"""Processes that were cut off, and whether the record of each task is complete nevertheless.

A process writes its rows in order, so that a row of a moment proves that the earlier ones are
there, unless the segment has a gap. Where the record proves nothing, the finding is ``missing``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.words import count

if TYPE_CHECKING:
    from dask_strata.run import Run


@dataclass(frozen=True)
class Cut:
    """The evidence about a process that was cut off.

    Attributes
    ----------
    whole : bool
        Whether everything about tasks that the process would have recorded is on record.
    text : str
        The evidence, or the first part that is missing.
    """

    whole: bool
    text: str


#: Attempts on workers that were cut, from the scheduler's record. A worker reports the end of an
#: attempt with the stimulus of its own transition. Of an attempt that ended otherwise, the worker's
#: rows are there if it wrote later ones.
_ATTEMPTS = """
    with cut as (
        select c.process, c.worker, epoch_ns(c.start) - 1000000000 as start,
               coalesce(epoch_ns(c.removed), epoch_ns(c.next_start), 9223372036854775807) as stop,
               c.end_stimulus_id
        from _worker_connections c where list_contains($1, c.process) and c.worker is not null
    ), written as (
        select process, max(epoch_ns(time)) as time from overheads group by process
    ), reported as (
        select distinct process, _key, stimulus_id from worker_transitions
        where list_contains($1, process)
    ), judged as (
        select c.process, a.stop,
               a.outcome = 'running' or a.stimulus_id is not distinct from c.end_stimulus_id
                   as lost,
               case when a.outcome in ('memory', 'erred', 'retried')
                    then r.process is not null
                         and (a._process is not distinct from c.process
                              or not exists (from executions))
                    else epoch_ns(a.stop) < w.time - 1000000000 end as known
        from cut c join attempts a
          on a.worker = c.worker
         and coalesce(epoch_ns(a.start), epoch_ns(a.stop)) between c.start and c.stop
        left join reported r
          on r.process = c.process and r._key = a._key and r.stimulus_id = a.stimulus_id
        left join written w on w.process = c.process
    )
    select process, count(*) filter (not lost) as n_ended, count(*) filter (lost) as n_lost,
           count(*) filter (not lost and not coalesce(known, false)) as n_unknown
    from judged group by process
"""

#: Workers that were cut with a P2P shuffle, or a profile, that they had not ended.
_OPEN = """
    select process, 'the counters of its P2P shuffles' as what from (
        select process, shuffle, run_id from shuffle_samples where list_contains($1, process)
        group by all having not bool_or(coalesce(ended, false))
    )
    union
    select process, 'its profile' from processes where list_contains($1, process)
    and role in (select p.role from functions f join processes p on p.process = f.process)
"""

#: Submissions of clients that were cut. Rows of a graph follow those of its submission.
_SUBMISSIONS = """
    with written as (
        select process, max(epoch_ns(time)) as time from overheads group by process
    ), described as (
        select s.process, count(*) as n, max(epoch_ns(s.time)) as last
        from client_submissions s where list_contains($1, s.process) group by s.process
    ), layered as (
        select distinct process, first_key, time from graph_layers where list_contains($1, process)
    ), undescribed as (
        select l.process, count(*) as n
        from layered l anti join client_graphs g
          on g.process = l.process and g.first_key = l.first_key and g.time = l.time
        group by l.process
    )
    select p.process,
           (select count(*) from submissions s where s.client = p.address) as n_submitted,
           coalesce(d.n, 0) as n_described, coalesce(u.n, 0) as n_partly,
           coalesce(d.last < w.time - 1000000000, true) as later
    from processes p left join described d on d.process = p.process
    left join undescribed u on u.process = p.process
    left join written w on w.process = p.process
    where list_contains($1, p.process)
"""


def judge_cuts(run: Run, processes: Collection[str]) -> dict[str, Cut]:
    """Return the evidence about each process that was cut off.

    Parameters
    ----------
    run : Run
        The run.
    processes : collection of str
        Ids of the processes, which have no gap and no damage on record.
    """
    by_role: dict[str, list[str]] = {}
    for process in processes:
        by_role.setdefault(process.partition("-")[0], []).append(process)
    nannies = by_role.get("nanny", ())
    found = {process: Cut(whole=True, text="it records no tasks") for process in nannies}
    if workers := by_role.get("worker"):
        found |= _workers(run, workers)
    if clients := by_role.get("client"):
        found |= {row["process"]: _client(row) for row in run.rows(_SUBMISSIONS, clients)}
    if cut := [process for process in found if process not in nannies]:
        for row in run.rows(_OPEN, cut):
            found[row["process"]] = Cut(whole=False, text=f"{row['what']} may be incomplete")
    return found


def _workers(run: Run, workers: list[str]) -> dict[str, Cut]:
    found = {process: Cut(whole=True, text="no attempt had ended on it") for process in workers}
    for row in run.rows(_ATTEMPTS, workers):
        found[row["process"]] = _worker(row)
    return found


def _worker(row: dict[str, Any]) -> Cut:
    n, unknown = row["n_ended"], row["n_unknown"]
    if unknown:
        text = (
            f"its rows of {unknown:,} of {count(n, 'attempt')} that ended on it are not on record"
        )
        return Cut(whole=False, text=text)
    text = f"its rows of {count(n, 'attempt')} that ended on it are on record" if n else ""
    lost = f"{count(row['n_lost'], 'attempt')} had not ended" if row["n_lost"] else ""
    return Cut(whole=True, text=", ".join(filter(None, (text, lost))))


def _client(row: dict[str, Any]) -> Cut:
    n = row["n_submitted"]
    missing = n - row["n_described"]
    if missing > 0:
        text = f"its rows of {missing:,} of {count(n, 'submission')} are not on record"
    elif row["n_partly"] or not row["later"]:
        text = "its rows of the last submission may be incomplete"
    else:
        return Cut(whole=True, text=f"its rows of {count(n, 'submission')} are on record")
    return Cut(whole=False, text=text)
