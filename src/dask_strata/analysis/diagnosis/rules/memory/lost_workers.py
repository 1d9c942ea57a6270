"""Workers that ended unexpectedly, and the work that was lost with them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.why.advice import advice_for
from dask_strata.analysis.words import count, duration
from dask_strata.analysis.worker_ends import phrase_of

_ENDS = """
    select cause, signal, exit_status, case when cause = 'closed' then reason end as reason,
           job_state, max(memory_bytes) as memory_bytes,
           max(memory_limit_bytes) as memory_limit_bytes,
           count(*) as n, arg_min(coalesce(name, worker), stop) as first
    from worker_ends left join _job_ends using (worker, stop)
    where ended = 'unexpected' group by 1, 2, 3, 4, 5 order by n desc, cause
"""

#: Prefixes of tasks that were executing on workers as they ended unexpectedly.
_RUNNING = """
    select coalesce(a.prefix, '(unknown)') as prefix, count(distinct a.worker) as n_workers,
           count(*) as n, any_value(a.key) as key
    from attempts a
    join (select distinct worker, stimulus_id from worker_ends where ended = 'unexpected') e
      on e.worker = a.worker and e.stimulus_id = a.stimulus_id
    where a.outcome in ('lost', 'erred', 'retried')
      and (a.compute_seconds is not null or a.attempt in (select attempt from phases))
    group by 1 order by n_workers desc, n desc, prefix limit 1
"""

_LOST = """
    with lost as (
        select _key, compute_seconds from attempts
        where outcome = 'lost' and compute_seconds is not null
    )
    select count(distinct _key) as n, (select count(*) from lost) as n_lost,
           (select sum(compute_seconds) from lost) as seconds,
           (select count(distinct _key) from _renewals) as n_renewed
    from (select _key from lost union all select _key from _renewals)
"""

#: Causes of ends for lack of memory.
_OF_MEMORY = frozenset({"memory limit", "oom killer"})

#: Most causes in a sentence.
_MOST = 3


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on lost workers, and one on tasks that were computed again without one.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    ends = evidence.run.rows(_ENDS)
    claims = evidence.fates.repeated
    lost = evidence.run.rows(_LOST)[0]
    again = lost["n"]
    if ends:
        how = ", ".join(f"{end['n']:,} {phrase_of(end)}" for end in ends[:_MOST])
        n, more = sum(end["n"] for end in ends), " and others" if len(ends) > _MOST else ""
        running = next(iter(evidence.run.rows(_RUNNING)), None)
        while_ = (
            f", while `{running['prefix']}` ran on {'it' if n == 1 else 'them'}" if running else ""
        )
        memory = [end for end in ends if end["cause"] in _OF_MEMORY]
        yield Finding(
            "killed-worker" if memory else "lost-worker",
            f"{count(n, 'worker')} ended unexpectedly: {how}{more}{while_}; "
            f"{count(again, 'task')} had to be computed again",
            (f"for example {running['key']}; " if running else "")
            + f"{count(n, 'row')} of worker_ends; lost attempts had computed for "
            + (duration(lost["seconds"]) if lost["seconds"] else "an unknown time"),
            advice_for((memory or ends)[0]),
            f"why RUN {shlex.quote(ends[0]['first'])}" if n == 1 else "why RUN",
            grave=True,
            claims=claims,
        )
    elif again and claims:
        yield Finding(
            "recomputation",
            f"{count(again, 'task')} were computed again: their results were lost with a "
            "worker, or released before they were needed again",
            f"{lost['n_renewed']:,} results were lost or released; "
            f"{count(lost['n_lost'], 'attempt')} lost"
            + (f" after {duration(lost['seconds'])}" if lost["seconds"] else ""),
            "retire workers with client.retire_workers() (it moves their results first), and "
            "persist or write results that are needed later",
            "query RUN \"select key, worker, outcome from attempts where outcome = 'lost'\"",
            claims=claims,
        )
