"""Results that were lost with a worker, and what was computed again for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.why.ends import WorkerEnd

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most keys that are named.
_KEYS = 4

#: Results that the worker held as it was removed, by the scheduler's rows and its own, of which one
#: that was killed lacks the last. Lost are those that left memory with the removal, unless another
#: worker held them: these were only needed no more.
_HELD = """
    with removed as (
        select worker, stop, stimulus_id from worker_ends
        where worker = ? and stimulus_id is not distinct from ?
    ), by_worker as (
        select r._key, any_value(r.origin) as origin
        from removed w join replicas r on r.worker = w.worker and r.stop = w.stop
        where r.ended_by = 'removed' group by r._key
    ), left_memory as (
        select t._key, min(t.seq) as seq from scheduler_transitions t join removed w
          on w.stimulus_id = t.stimulus_id
        where t.start_state = 'memory' group by t._key
    ), computed as (
        select t._key, arg_max(t.worker, t.seq) as worker
        from scheduler_transitions t join left_memory l on l._key = t._key and t.seq < l.seq
        where t.finish_state = 'memory' group by t._key
    ), held as (
        select _key, origin from by_worker
        union all
        select _key, 'computed' from computed join removed using (worker)
        where _key not in (select _key from by_worker)
    ), copied as (
        select distinct h._key from held h join replicas o on o._key = h._key cross join removed w
        where o.worker <> w.worker and o.start <= w.stop and (o.stop is null or o.stop > w.stop)
    ), sizes as (
        select _key, arg_max(nbytes, stop) as nbytes from attempts
        where _key in (select _key from held) and nbytes is not null group by _key
    )
    select k.key, h.origin, s.nbytes, c._key is null as sole
    from held h join _keys k on k._key = h._key
    left join copied c on c._key = h._key left join sizes s on s._key = h._key
    left join left_memory l on l._key = h._key
    -- The scheduler had released the others before, and the worker's row of that is missing.
    where c._key is not null or l._key is not null
       or (select any_value(stimulus_id) from removed) is null
    order by k.key
"""

#: Tasks that began to wait again because of the removal: their results were lost, or had been
#: released before and were needed for those. A task that was assigned to a worker had no result.
_AGAIN = """
    with removed as (
        select distinct stimulus_id from worker_ends where worker = ? and stimulus_id = ?
    ), again as (
        select s._key, min(s.time) as time from scheduler_transitions s join removed w
          on w.stimulus_id = s.stimulus_id
        where s.finish_state = 'waiting' and s._key not in (
            select p._key from scheduler_transitions p join removed w
              on w.stimulus_id = p.stimulus_id where p.start_state = 'processing')
        group by s._key
    ), computed as (
        select a._key, arg_min(a.compute_seconds, a.start) as seconds, count(*) as n
        from attempts a join again g on g._key = a._key
        where a.start >= g.time and a.outcome = 'memory' group by a._key
    )
    select count(*) as n, count(c._key) as n_computed, sum(c.seconds) as seconds
    from again g left join computed c on c._key = g._key
"""


@dataclass(frozen=True)
class Lost:
    """Results that a worker held as it ended.

    Attributes
    ----------
    n_held : int
        Results that it held.
    n_lost : int
        Those that no other worker held.
    lost_bytes : int or None
        Their size, as far as it is known.
    n_scattered : int
        Lost results that a client had scattered: they cannot be computed again.
    keys : tuple of str
        The first keys of lost results.
    n_again : int
        Tasks that began to wait again: their results were lost, or had been released and were
        needed for those.
    n_computed : int
        Those that were computed again.
    seconds : float or None
        Time in their functions; None if none was.
    """

    n_held: int
    n_lost: int
    lost_bytes: int | None
    n_scattered: int
    keys: tuple[str, ...]
    n_again: int
    n_computed: int
    seconds: float | None


def lost_with(run: Run, end: WorkerEnd) -> Lost:
    """Return what was lost with a worker.

    Parameters
    ----------
    run : Run
        The run.
    end : WorkerEnd
        The worker.
    """
    held = run.rows(_HELD, end.worker, end.stimulus_id)
    lost = [row for row in held if row["sole"]]
    sizes = [row["nbytes"] for row in lost if row["nbytes"] is not None]
    [again] = run.rows(_AGAIN, end.worker, end.stimulus_id)
    return Lost(
        n_held=len(held),
        n_lost=len(lost),
        lost_bytes=sum(sizes) if sizes else None,
        n_scattered=sum(row["origin"] == "scattered" for row in lost),
        keys=tuple(row["key"] for row in lost[:_KEYS]),
        n_again=again["n"],
        n_computed=again["n_computed"],
        seconds=again["seconds"],
    )
