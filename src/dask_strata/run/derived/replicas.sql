-- Replicas: the results that each worker held, by the transitions of workers into memory and out
-- of it. For workers without these, by the scheduler's transitions.
-- depends on: _imported_workers, _keys, _replica_workers, _transitions, scheduler_transitions, worker_log,
-- worker_transitions, _worker_connections
-- by key: _keys, _transitions, scheduler_transitions, worker_log, worker_transitions
-- order: start, worker, key
with changes as (
    select process, worker, _key, time, seq, start_state, stimulus_id, finish_state = 'memory' as holds,
           time as start
    from worker_transitions where (finish_state = 'memory') <> (start_state = 'memory')
    union all by name
    select process, worker, _key, time, -1 as seq, true as holds from worker_log
    where event = 'held-at-start'
), steps as (
    select *, lead(time) over life as left_at, lag(holds) over life as held
    from changes window life as (partition by _key, worker, process order by time, seq)
), recorded as (
    select coalesce(p.address, s.worker) as worker, _key,
           case when holds then start end as start, case when holds then left_at else time end as stop,
           case when not holds then null
                when start_state in ('executing', 'long-running') then 'computed'
                -- Dask's `replicate` and `rebalance` call `gather` on the worker.
                when start_state = 'flight' or stimulus_id like 'gather-%' then 'fetched'
                when stimulus_id like 'update-data-%' then 'scattered'
           end as origin, time, 'worker' as seen_by
    from steps s left join _imported_workers p on p.name = s.worker
    -- A result that leaves without a row of its arrival was held before the recording began.
    where holds or held is null
), computed as (
    select s.worker, t._key, t.time as start, t.next_time as stop, 'computed' as origin, t.time,
           'scheduler' as seen_by
    from _transitions t join scheduler_transitions s on s._row = t._row
    where t.finish_state = 'memory' and s.worker is not null
      and s.worker not in (from _replica_workers)
), held as (
    select * from recorded union all by name select * from computed
), removals as (
    select worker, stop from _worker_connections where end_reason is not null
), ended as (
    -- The first removal of the worker since; most workers have none.
    select h.*, w.stop as removed
    from (from held where worker in (select worker from removals)) h asof left join removals w
      on w.worker = h.worker and h.time <= w.stop
    union all by name
    select h.*, null as removed from held h anti join removals w on w.worker = h.worker
)
select e._key, k.key, k.key_type, e.worker, e.start, least(e.stop, e.removed) as stop, e.origin,
       case when e.stop <= e.removed or e.removed is null and e.stop is not null then 'released'
            when e.removed is not null then 'removed' end as ended_by,
       e.seen_by
from ended e join _keys k on k._key = e._key
